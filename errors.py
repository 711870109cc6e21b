"""The errors a user can meet. The lowest layer: imports nothing of ours.

`exit_code` is what the command line returns: 2 for something the user gave that cannot work, 1 for a fault at run time.
"""


class RopewalkError(Exception):
    """A fault with a message that names the field or file, the value found and what to set instead."""

    exit_code = 2


class ConfigError(RopewalkError):
    """A recipe, an override or a command-line value is wrong."""


class MethodError(ConfigError):
    """A RoPE method, its parameters, or its composition with a model's own scaling is wrong."""


class DataError(RopewalkError):
    """A text source, a tokenizer or a row plan cannot give what was asked."""


class ModelError(RopewalkError):
    """A model folder or hub id cannot be loaded, is not supported, or disagrees with the recipe."""


class EvalError(RopewalkError):
    """A measurement cannot be made as asked."""


class RunError(RopewalkError):
    """Something failed while running: disk, checkpoint, a lost rank, a non-finite loss."""

    exit_code = 1
