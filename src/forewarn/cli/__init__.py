"""The command line, a client of the operator API.

A command consists of a noun and a verb. A noun alone runs its default verb, `list` or `show`.
Each module of this package implements one noun, or a few related ones. `main.py` calls the public
function of the module when the user types one of its nouns::

    def add_commands(commands: Commands) -> None:
        lease = commands.group("lease")                          # `forewarn lease …`
        listing = lease.command("list", "list leases", run=_list)  # also a bare `forewarn lease`
        add_list_options(listing, states=("held", "free"))       # --state and --limit
        end = lease.command("end", "end a lease", run=_end)
        end.add_argument("id", metavar="ID")

    def _list(arguments: argparse.Namespace) -> int:
        client = client_of(arguments)
        leases = {"leases": list(records(client, "/v1/leases", "leases"))}
        return show_list(arguments, leases, (("lease", "id"), "state"), name="leases")

- `main.NOUNS` lists each noun with its module and its help. Import each new module in the
  `TYPE_CHECKING` block of `main.py`, too.
- `run` receives the parsed arguments and returns an exit status of `exit_codes.py`.
- `parser.option("--gate NAME", "help")` adds an option with a value, and `parser.flag` one without.
- Every command has `--json` (`arguments.json`). `remote=False` omits `--server` and `--token-file`
  from a command that calls no server.
- To fail, raise a `ForewarnError`. `main.py` prints the error's code, message and advice, as JSON
  with `--json`, and chooses the exit status. A `PeerError` leads to exit status 3.
- Print results to standard output (`print_json`, `print_list`), progress to standard error
  (`note`).
- `main.py` handles Ctrl-C and a closed pipe.
- Import the server's packages inside `run`: a basic installation does not have them.
  `forewarn --help` imports none of these modules.
"""
