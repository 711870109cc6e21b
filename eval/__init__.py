"""One benchmark a file; score.py is the common record. Importing this package loads no torch."""

from ..errors import EvalError as EvalError  # parent-relative on purpose: a bare `import eval` must fail
