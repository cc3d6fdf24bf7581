"""The tidy checks of every text: documents, code, SQL, settings, scripts."""

import re

from tests.tidy.house import Found, Source, check

LINE_LENGTH_MAX = 100
#: Nobody reviews more; a picture or a table that is larger belongs beside the repository.
BLOB_BYTES_MAX = 256 * 1024


@check("*", bad="a\tb\n\x1b[0m\n", good="a\tb\n")
def no_control_characters(source: Source) -> Found:
    """A text is readable everywhere: no control characters, no stray encoding, Unix line ends."""
    for number, line in enumerate(source.lines, 1):
        if re.search("[\x00-\x08\x0b-\x1f\x7f\u2028\u2029\ufeff\ufffd]", line):
            yield number, "a control character, a carriage return or a byte that is not UTF-8"


@check("*", bad="x" * (BLOB_BYTES_MAX + 1), good="x\n")
def no_large_blobs(source: Source) -> Found:
    """A file stays small enough to be read."""
    if len(source.text) > BLOB_BYTES_MAX:
        yield 1, f"{len(source.text):,} bytes; at most {BLOB_BYTES_MAX:,}"


@check("*", bad="one \ntwo\n", good="one\ntwo\n")
def no_trailing_space(source: Source) -> Found:
    """A line ends where its text ends, and a file with one line end."""
    for number, line in enumerate(source.lines, 1):
        if line != line.rstrip():
            yield number, "space at the end of the line"
    if source.text and not source.text.endswith("\n"):
        yield len(source.lines), "no line end at the end of the file"
    if source.text.endswith("\n\n"):
        yield len(source.lines), "empty lines at the end of the file"


@check(
    *(
        "*.sql",
        "pyproject.toml",
        "dist/*.toml",
        "*.yaml",
        "*.sh",
        "Makefile",
        ".ci/run",
        "*.service",
    ),
    bad="x = 1  # " + "very " * 20 + "long\n",
    good="x = 1  # short\n",
    at="dist/sample.toml",
)
def no_long_lines(source: Source) -> Found:
    """What is not Python fits beside it; prose, with one sentence on a line, is exempt."""
    for number, line in enumerate(source.lines, 1):
        if len(line) > LINE_LENGTH_MAX:
            yield number, f"{len(line)} characters; at most {LINE_LENGTH_MAX}"


#: Words that nearly always stand where plain English has a usual phrase.
STILTED = re.compile(
    r"\b(an[e]w|m[e]nd(?:s|ed|ing)?|so m[a]ny (?!that\b))\b"
    r"|(?<!there )(?<!there can be )(?<!there must be )"
    r"\b(?:is|are|was|were) n[o] (?!longer|more|less|one\b|such|other|way|reason|need|earlier)",
    re.IGNORECASE,
)


@check(
    *("*.py", "*.md", "*.toml", "*.js"),
    bad="'x' is n" + "o number.\n",
    good="'x' is not a number; there is no default.\n",
    at="docs/sample.md",
)
def no_stilted_words(source: Source) -> Found:
    """Prose is plain, idiomatic English: again, repair, this many, is not a."""
    for number, line in enumerate(source.lines, 1):
        if found := STILTED.search(line):
            yield number, f"{found[0]!r} is stilted: write what people usually say"


#: Verbs and pronouns that documents and the product's own text say in plainer words.
QUAINT = re.compile(r"\b(wh[o]ever|t[o]ld|t[e]lls?(?=\b(?!\()))\b", re.IGNORECASE)


@check(
    *("src/*.py", "src/*.js", "docs/*.md", "README.md", "ARCHITECTURE.md"),
    bad="Returns what the node is t" + "old.\n",
    good="Returns what the node is sent; file.tell() is a method.\n",
    at="docs/sample.md",
)
def no_quaint_words(source: Source) -> Found:
    """Return, report, notify, show, send or say: the verb that says what happens."""
    for number, line in enumerate(source.lines, 1):
        if found := QUAINT.search(line):
            yield number, f"{found[0]!r}: name the act (report, show, send, return) or the actor"


#: A line that Git leaves where two changes met, at any indentation.
MARKER = re.compile(r"^\s*(<{7} |>{7} |={7}$)")


@check(
    *("*.py", "*.js", "*.md", "*.toml", "*.sql"),
    bad="    " + "<" * 7 + " HEAD\n",
    good="A title\n========\n",
    at="src/forewarn/sample.py",
)
def no_conflict_markers(source: Source) -> Found:
    """Both sides of a merge are read, and one sentence is left."""
    for number, line in enumerate(source.lines, 1):
        if MARKER.search(line):
            yield number, "a marker of a merge is left"


#: Words that carry no picture, and relative clauses in place of a noun.
EMPTY = re.compile(
    r"\b([Tt]hat wh[i]ch|[Nn]one [i]s|[Ll]ike[w]ise|by its[e]lf|well ag[a]in|wh[a]t is(?!.*\?)"
    r"|as it [i]s(?= *(?:[.,;:)]|$))|c[o]me to(?! [a-z]+ end)|in the w[a]y|at a[l]l(?! other))\b"
)


@check(
    *("*.py", "*.js", "docs/*.md", "README.md"),
    bad="Keep wh" + "at is stored.\n",
    good="What is stored? The state.\n",
    at="docs/sample.md",
)
def plain_words(source: Source) -> Found:
    """Name the actor, the act or the thing."""
    for number, line in enumerate(source.lines, 1):
        if found := EMPTY.search(line):
            yield number, f"{found[0]!r} carries no picture: name the actor, the act or the thing"


@check("*", bad="# FIX" + "ME later\n", good="# Fixed before it landed.\n")
def no_unfinished_marks(source: Source) -> Found:
    """What is unfinished is finished, or described where users look for it, before it lands."""
    for number, line in enumerate(source.lines, 1):
        if found := re.search(r"\b(FIX[M]E|TO[D]O|X[X]X|H[A]CK)\b", line):
            yield number, f"{found[0]} cannot land: finish it, or document the limit"


@check(
    *("*.md", "*.py", "*.sql", "*.toml", "*.service", "*.txt", "Makefile", ".ci/run", "tools/*"),
    bad="see /ho" + "me/kim/notes\n",
    good="see docs/glossary.md\n",
    at="README.md",
)
def no_workplace(source: Source) -> Found:
    """Project text is for users and maintainers: no path of one machine, no writing tool.

    Recorded documents (`.jsonl`) are as others wrote them.
    """
    private = r"(?<![\w.])/(?:work/|root\b|ho[m]e/|Users/|tmp/fw)|\bfarm-\d|\bC[E]O\b"
    tools = r"(?i:\b(?:cl[a]ude|anth[r]opic|chat[g]pt|copil[o]t|ll[m]s?)\b|\bissue #?\d)"
    for number, line in enumerate(source.lines, 1):
        if found := re.search(f"{private}|{tools}", line):
            yield number, f"{found[0]!r} belongs to somebody's workplace, not to the project"


@check("*.md", bad="# One\n\n# Two\n", good="# One\n\n## Two\n", at="docs/page.md")
def one_title(source: Source) -> Found:
    """A document has one title."""
    without_code = re.sub(r"^```.*?^```$", "", source.text, flags=re.MULTILINE | re.DOTALL)
    titles = re.findall(r"^# .+$", without_code, flags=re.MULTILINE)
    if len(titles) != 1:
        yield 1, f"{len(titles)} lines of the form '# Title'; a document has exactly one"
