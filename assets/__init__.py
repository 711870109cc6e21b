"""Small models that ship with Ropewalk."""

from ..errors import RopewalkError as RopewalkError  # parent-relative on purpose: a bare `import assets` must fail
