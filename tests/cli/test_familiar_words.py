"""Words of other programs are answered with ours."""

import pytest

from forewarn_base.exit_codes import USAGE
from forewarn_server.cli import familiar_words
from forewarn_server.cli.nouns import NOUNS
from tests.cli.conftest import Run


@pytest.mark.parametrize(
    ("typed", "answer"),
    [
        ("get hosts", "did you mean `forewarn host list`?"),
        ("describe vm web-0", "did you mean `forewarn vm show NAME`?"),
        ("get", "did you mean `forewarn host list`?"),
        ("drain h1", "did you mean `forewarn maintenance create HOST --move-vms 1h`?"),
        ("config get-contexts", "did you mean `forewarn context list`?"),
        ("events", "did you mean `forewarn event`?"),
        ("op list", "did you mean `forewarn operation`?"),
        ("host get h1", "did you mean list or show?"),
        ("host delete h1", "did you mean remove?"),
        ("vm restart web-0", "did you mean reboot?"),
        ("vm restart --name web-0", "There is no action 'restart'; did you mean reboot?"),
        ("vm reboot web-0 --no-wait", "a command waits only with --wait"),
        ("context list -g shop", "names are unique in the whole fleet"),
        ("host list -n shop", "use --owner or --group"),
        ("topology apply -f fleet.toml", "name the file without -f"),
        ("host reboot -f hosts", "use --file"),
        ("event approve web-0", "did you mean `forewarn operation approve`?"),
        ("rollout status m-1", "did you mean `forewarn maintenance show ID`?"),
        ("rollout restart", "did you mean `forewarn maintenance list`?"),
        ("get nodes", "did you mean `forewarn host list`?"),
        ("get pods -n shop", "did you mean `forewarn vm list`?"),
        ("pods", "did you mean `forewarn vm list`?"),
        ("describe node h1", "did you mean `forewarn host show NAME`?"),
        ("delete vm web-0", "did you mean `forewarn vm remove NAME`?"),
        ("create group g", "did you mean `forewarn group add NAME`?"),
        ("config use-context x", "did you mean `forewarn context use NAME`?"),
        ("auth can-i", "did you mean `forewarn access can-i`?"),
        ("diff -f fleet.toml", "did you mean `forewarn topology apply FILE --dry-run`?"),
        ("topology diff fleet.toml", "did you mean apply --dry-run?"),
        ("topology apply fleet.toml --dry-run=server", "--dry-run takes no value"),
        ("api-resources", "did you mean `forewarn help`?"),
        ("explain host", "`forewarn host --help` describes it"),
        ("wait op-1 --for condition=ready", "choose one of announced, running"),
        ("maintenance delete m-1", "did you mean cancel?"),
        ("context use-context x", "did you mean use?"),
        ("host list -A", "every list shows the whole fleet"),
        ("vm reboot --name web-0", "type the name without --name"),
        ("maintenance start m-1 --severity high", "There is no option --severity."),
        ("host list --severity x", "the options are --state, --limit"),
        ("maintenance start", "required: ID; for example: forewarn maintenance start m-12"),
        ("wait op-1 --timeout soon", "such as 90s or 10m"),
    ],
)
def test_word_of_another_program_is_answered_with_ours(run: Run, typed: str, answer: str) -> None:
    """Hands know kubectl, az and gh."""
    refused = run(*typed.split())
    assert refused.status == USAGE
    assert answer in refused.err


def test_each_command_that_is_suggested_exists() -> None:
    """A suggestion that is wrong itself would be worse than none."""
    commands = (*familiar_words._COMMANDS.values(), *familiar_words._PAIRS.values())
    for command in commands:
        assert command.split()[1] in {*NOUNS, "help"}


def test_selector_and_timeout_take_short_forms(run: Run) -> None:
    """`-l` as in kubectl, and a time with its unit."""
    run("host", "add", "h7", "--label", "rack=r7")
    assert run("host", "list", "-l", "rack=r7", "-o", "name").out == "h7\n"
    run("host", "repair", "h7")
    assert "op-1" in run("vm", "reboot", "db-0", "-o", "json").out
    assert run("wait", "op-1", "--for", "announced", "--timeout", "10m").status == 0
