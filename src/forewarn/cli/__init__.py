"""The command line: every command, over the operator API; no decision about events lives here.

How a command is made. A module of this package holds the commands that belong together and
has one public function, which `main.py` calls when one of its commands is typed::

    from forewarn.cli.api_client import client_of
    from forewarn.exit_codes import OK
    from forewarn.cli.parsing import Commands
    from forewarn.cli.output import print_json, print_table

    def add_commands(commands: Commands) -> None:
        emulate = commands.command("emulate", run=_emulate, remote=False)   # `forewarn emulate`
        emulate.add_argument("--speed", type=float, default=1.0)
        clock = commands.group("clock")                                      # `forewarn clock …`
        advance = clock.command("advance", "move the clock ahead", run=_advance)
        advance.add_argument("by", metavar="DURATION")

    def _advance(arguments: argparse.Namespace) -> int:
        answer = client_of(arguments).post("/v1/clock/advance", {"by": arguments.by})
        if arguments.json:
            return print_json(answer)
        print_table(("clock", "speed"), [(answer["now"], answer["speed"])])
        return OK

- `main.COMMANDS` names each command once, with its module and the line `forewarn --help` shows;
  a top-level command or group takes that line, an action of a group gives its own. A module that
  is new is also named in the `TYPE_CHECKING` block there.
- `run` gets the parsed arguments and returns an exit status of `exit_codes.py`.
- `--json` is on every command (`arguments.json`). `--server` and `--token-file` are too, unless
  `remote=False` says that the command talks to no server.
- Refusals are raised, never printed: any `ForewarnError` becomes `forewarn: sentence` and its
  advice on standard error and an exit status. A `PeerError` of the client is 3, else 1.
- Results go to standard output (`print`, `print_json`, `print_table`), progress to standard
  error (`table.note`).
- Ctrl-C and a closed pipe are taken care of in `main.py`.
- Only the standard library may be imported at the top of a module here, and nothing heavy that
  `forewarn --help` does not need; import the rest inside `run`.
"""
