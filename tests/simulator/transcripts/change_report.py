"""Telling what changed: operations, documents and agents, as the lines of a transcript.

Times are relative to the world's beginning.
"""

from forewarn_base.protocol.documents import Document, ScheduledEvent
from forewarn_core.fleet.draft import Draft, Terms
from forewarn_core.fleet.lifecycle import Alert, Operation, OperationState
from forewarn_core.fleet.why import why
from forewarn_core.rules.blockers import Blocker, code_of
from tests.simulator.transcripts.time_spans import moment
from tests.simulator.world.deployment import Deployment

S = OperationState


class ChangeReport:
    """Remembers what was printed, and returns what is different now."""

    def __init__(self, deployment: Deployment) -> None:
        """Begin with nothing printed."""
        self._deployment = deployment
        #: Groups in the order they were declared.
        self.groups: list[str] = []
        self._ids: dict[str, str] = {}
        self._names: dict[str, str] = {}
        self._operations: dict[int, Operation] = {}
        self._waiting: dict[int, str] = {}
        self._documents: dict[str, Document] = {}

    # ---- names of events -----------------------------------------------------------------------

    def name_of(self, event_id: str) -> str:
        """The short name of an event, given in the order events are first shown."""
        name = self._names.get(event_id)
        if name is None:
            name = self._names[event_id] = f"ev-{len(self._names) + 1}"
            self._ids[name] = event_id
        return name

    def id_of(self, name: str) -> str:
        """The id of an event by its short name; an invented one for an unknown name."""
        found = self._ids.get(name)
        if found is not None:
            return found
        number = name.removeprefix("ev-")
        return f"00000000-0000-4000-8000-{number:0>12}"

    def known(self) -> list[str]:
        """The short names given so far."""
        return list(self._ids)

    def shorten(self, text: str) -> str:
        """Put short names for the ids in a text."""
        for event_id in self._deployment.checker.events:
            if event_id in text:
                text = text.replace(event_id, self.name_of(event_id))
        return text

    # ---- telling -------------------------------------------------------------------------------

    def changes(self) -> list[str]:
        """Everything that is different since the last time, operations first."""
        documents = self._document_lines()  # they give the events their names
        lines = []
        for number in sorted(self._deployment.checker.operations):
            lines += self._operation_lines(self._deployment.checker.operations[number])
        return lines + documents

    def learn(self) -> None:
        """Give names to the events that are shown now, in the order they will be printed."""
        shown = self._deployment.checker.shown
        for group in self.groups:
            for key in sorted(key for key in shown if key.partition("/")[0] == group):
                for event in shown[key].events:
                    self.name_of(event.event_id)

    def skip(self) -> None:
        """Take everything that is now as printed."""
        self._documents = dict(self._deployment.checker.shown)

    def document(self, document: Document) -> str:
        """A document in short: its incarnation and events."""
        events = "; ".join(self._event(event) for event in document.events)
        return f"{document.incarnation}: {events or 'nothing'}"

    def waiting(self, operation: Operation) -> list[Blocker]:
        """What an operation waits for now."""
        deployment = self._deployment
        terms = Terms(deployment.policy, "", lambda: "")
        draft = Draft(deployment.checker.state, deployment.service.clock.now_ms(), terms)
        return list(why(draft, operation))

    def _event(self, event: ScheduledEvent) -> str:
        resources = ", ".join(event.resources)
        return f"{self.name_of(event.event_id)} {event.event_type} {event.status} [{resources}]"

    def _document_lines(self) -> list[str]:
        deployment = self._deployment
        if not deployment.service.up:
            return []
        shown = deployment.checker.shown
        found: list[tuple[str, str]] = []
        for group in self.groups:
            views = [key for key in (*shown, *self._documents) if key.partition("/")[0] == group]
            for key in dict.fromkeys(sorted(views)):
                document = shown.get(key)
                if document == self._documents.get(key):
                    continue
                found.append((key, "disabled" if document is None else self.document(document)))
        self.skip()
        width = max((len(key) for key, _ in found), default=0)
        return [f"{key:{width}} {text}" for key, text in found]

    def _operation_lines(self, operation: Operation) -> list[str]:
        before = self._operations.get(operation.number)
        if before is not None and not before.live:
            return []
        self._operations[operation.number] = operation
        waiting = self._waiting_line(operation)
        waited = self._waiting.get(operation.number, "")
        self._waiting[operation.number] = waiting
        if before is None or before.state is not operation.state:
            return [self._state_line(operation, waiting)]
        if before.notice.not_before_ms != operation.notice.not_before_ms:
            return [f"{operation.id} announced again; not before {moment(operation.not_before_ms)}"]
        if waiting and waiting != waited:
            return [f"{operation.id} {waiting}"]
        if before.execution.attempt != operation.execution.attempt:
            return [f"{operation.id} begun again"]
        return []

    def _state_line(self, operation: Operation, waiting: str) -> str:
        text = f"{operation.id} {operation.state.value}"
        if operation.state is S.PLANNED:
            return f"{text}; {waiting}" if waiting else text
        if operation.state is S.ANNOUNCED:
            return f"{text}; not before {moment(operation.not_before_ms)}"
        return f"{text}: {operation.reason}" if operation.reason else text

    def _waiting_line(self, operation: Operation) -> str:
        """One line for everything an operation waits for; empty where there is nothing to say."""
        found = self.waiting(operation)
        if operation.state is S.RUNNING:
            if operation.reason:
                return f"is stuck: {operation.reason}"
            return "alert: runs longer than it should" if operation.alert is not Alert.NONE else ""
        asked = [each for each in found if each.code is code_of("approval")]
        others = [
            each.text for each in found if each.code not in {code_of("approval"), code_of("time")}
        ]
        parts = [self._asked(operation, each) for each in asked]
        line = f"waits for {', '.join(parts)}" if parts else ""
        if others:
            line += f"{', and ' if line else 'waits: '}{self.shorten('; '.join(others))}"
        if not line and found:
            line = "waits"
        if line and operation.state is S.ANNOUNCED and not others:
            line += f"; starts {moment(operation.not_before_ms)} at the latest"
        return line

    def _asked(self, operation: Operation, waiting: Blocker) -> str:
        group = waiting.subject
        events = self._deployment.checker.events
        name = next(self.name_of(each) for each in operation.events if events[each].group == group)
        missing = waiting.text.partition("(missing: ")[2].removesuffix(")")
        return f"{group} ({name}{': ' + missing if missing else ''})"
