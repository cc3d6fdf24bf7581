"""The names of the emulator that documents promise; its package is `forewarn-emulator`."""

from importlib.util import find_spec

if find_spec("forewarn_emulator") is None:
    raise ModuleNotFoundError(
        "The emulator needs the package forewarn-emulator: "
        "pip install ./forewarn/packages/forewarn-emulator, beside a clone.",
        name="forewarn_emulator",
    )
