"""The command line: every command is a client of the operator API.

The grammar is noun, then verb; a bare noun runs its `list` or `show`. Each module of this package
implements one noun, or a few related ones, and has one public function, which `main.py` calls when
the user types one of its nouns::
holds one noun, or a few that belong together, and has one public function, which `main.py` calls
when one of its nouns is typed::

    def add_commands(commands: Commands) -> None:
        lease = commands.group("lease")                          # `forewarn lease …`
        listing = lease.command("list", "list leases", run=_list)  # also a bare `forewarn lease`
        add_list_options(listing, states=("held", "free"))       # --state and --limit
        end = lease.command("end", "end a lease", run=_end)
        end.add_argument("id", metavar="ID")

    def _list(arguments: argparse.Namespace) -> int:
        client = client_of(arguments)
        found = list(records(client, "/v1/leases", "leases"))
        if arguments.json:
            return print_json({"leases": found})
        print_table(("lease", "state"), [(each["id"], each["state"]) for each in found])
        return OK

- `main.NOUNS` names each noun once, with its module and the line that `forewarn --help` shows.
  Add a new module to the `TYPE_CHECKING` block there, too.
- `run` gets the parsed arguments and returns an exit status of `exit_codes.py`.
- Every command has `--json` (`arguments.json`). Every command has `--server` and `--token-file`,
  except commands with `remote=False`, which call no server.
- To fail, raise a `ForewarnError`: `main.py` prints its code, message and advice, as JSON with
  `--json`, and chooses the exit status. A `PeerError` of the client gives status 3.
- Print results to standard output (`print_json`, `print_table`), progress to standard error
  (`note`).
- `main.py` handles Ctrl-C and a closed pipe.
- At the top of a module, import only the standard library, and nothing heavy that `forewarn --help`
  does not need; import the rest inside `run`.
"""
