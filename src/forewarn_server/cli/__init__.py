"""The command line, as applications of cyclopts.

A command consists of a noun and a verb. A noun alone runs its default verb, `list` or `show`.
Commands that only call the operator API are in the package `forewarn-cli`. Those that run the
service, or read its settings or store, are here, with what every command uses. Each module
implements one noun, or a few related ones, as an `App` named like the noun::

    lease = noun_app("lease")                                # `forewarn lease …`

    @lease.default                                           # also a bare `forewarn lease`
    @lease.command(name="list")
    def _list(*, limit: Limit = LIST_MAX, common: ServerOptions = COMMON) -> int:
        '''List leases.'''                                    # the help
        client = client_of(common)
        leases = {"leases": list(islice(records(client, "/v1/leases", "leases"), limit))}
        return show_list(common, leases, (("lease", "id"), "state"), name="leases")

    @lease.command(name="end")
    def _end(id_: LeaseId, /, *, common: ServerOptions = COMMON) -> int:
        '''End a lease.'''

- `nouns.NOUNS` lists each noun with its application and its help. Each is also an entry point in
  the `pyproject.toml` of its package.
- A function's parameters are the arguments of the command: those before `/` are positional, those
  behind `*` are options. `parameters.py` has types and options that several commands share; a
  dataclass with `Parameter(name="*")` is a group of options.
- A function returns an exit status of `exit_codes.py`.
- Every command takes `common: ServerOptions = COMMON`, or `printed: OutputOptions = PRINTED` if it
  calls no server.
- To fail, raise a `ForewarnError`. `main.py` prints the error's code, message and advice, as JSON
  with `--json`, and chooses the exit status. A `PeerError` leads to exit status 3.
- Print results to standard output (`print_json`, `print_list`), progress to standard error
  (`note`).
- `main.py` handles Ctrl-C and a closed pipe, and passes `forewarn agent` on to the agent, which
  needs no third-party package.
- Import the server's packages inside the function: an installation of the command line alone does
  not have them. `forewarn --help` imports none of these modules.
"""
