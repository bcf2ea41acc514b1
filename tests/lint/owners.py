"""State has one owner: what a module writes of a queue, a lane or a batch has to be named beside it, in the struct's own
text, as "Written by PATH, PATH only". A path is a file, or a folder with all that is in it. The comment stands before the
struct, or on lines of its own inside, above the fields that it is about. "Written by everybody" is a name, too."""

import os
import re
import sys

REPO = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, REPO)
from tests.lint.structure import included_modules, reachable, read, tracked  # noqa: E402

# struct -> (its header, how its variables are written in C)
OWNED = {
    "queue": ("relay/queue/queue.h", r"(?:\w*queue|lane_queue\(\w+\)|queues\[\w+\])"),
    "lane": ("relay/queue/batch.h", r"(?:\w*lane|other|lost|earlier|orphan|ours)"),
    "batch": ("relay/queue/batch.h", r"(?:\w*batch|arriving)"),
}
EVERYBODY = "everybody"
WRITTEN_BY = re.compile(r"Written by ([^:]*?)(?: only\b|:|\.(?: |$)|$)")
COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
FIELD = re.compile(r"(?:const\s+)?(?:(struct|enum)\s+)?(\w+)\s+(.*)", re.DOTALL)
WRITES = r"(?:\s*(?:=(?!=)|[-+|&^*/]=|<<=|>>=)|\+\+|--)"
READS = ("keyset_find", "guarded_text_of", "halving_room")  # what takes the address of a field and does not write it


def words(comment):
    return re.sub(r"\s*\n?\s*\*?\s+", " ", comment.strip("/* \n")).strip(" *")


def writers_in(comment):
    """The paths that a comment names; None when it names none."""
    found = WRITTEN_BY.search(words(comment))
    return found and tuple(path.strip() for path in found.group(1).split(","))


def body_of(text, struct):
    """(the comment before a struct, what is between its braces); None where it is not defined."""
    if f"\nstruct {struct} {{\n" not in text:
        return None
    found = re.search(r"((?:/\*(?:(?!\*/).)*\*/)?)\nstruct " + struct + r" \{\n(.*?)\n\};", text, re.DOTALL)
    return found and (found.group(1), found.group(2))


def fields_of(body):
    """(name, struct that it is or None, writers named in its paragraph or None) of each field."""
    for paragraph in re.split(r"\n[ ]*\n", body):
        writers = writers_in(paragraph)
        for piece in COMMENT.sub("", paragraph).split(";")[:-1]:
            found = FIELD.search(piece)
            for declared in found.group(3).split(","):
                embedded = found.group(2) if found.group(1) == "struct" and "*" not in declared else None
                yield re.search(r"(\w+)(?:\[\w+\])?\s*$", declared).group(1), embedded, writers


def is_writer(name, writers):
    module = os.path.splitext(name)[0]  # a source and its header are one
    return any(path == EVERYBODY or module == os.path.splitext(path)[0] or (path.endswith("/") and name.startswith(path))
               for path in writers)


def names_of(struct, variable, text):
    """How this file writes its variables of that struct: as they are named everywhere, and as it declares them."""
    declared = re.findall(rf"\bstruct {struct} \*(?:const )?(\w+)", text)
    return f"(?:{'|'.join([variable, *sorted(set(declared))])})"


def patterns_of(field, group, variable):
    place = rf"\b{variable}(?:->|\.){field}\b"
    inside = r"(?:\.\w+|\[\w+\])*" if group else ""  # what a pointer points to is not the field's
    yield place + inside + WRITES  # queue->pace.poll_at = ...
    yield r"(?:\+\+|--)(?:\w+->)*" + place + inside + r"(?!->)"  # ++queue->metrics.lost
    if group:
        yield rf"\bmem(?:set|cpy|move)\(&(?:\w+->)*{place}\b"  # memset(&queue->pace, ...)
        yield rf"(?<!const )\bstruct {group} \*(?!\*)\w+(?=[,)]| = &)"  # f(struct pace *pace); struct pace *pace = &...
        yield rf"(?<!const )\b\w+ \*\w+ = &(?:\w+->)*{place}\.\w"  # instant_us *at = &queue->pace.poll_at
        yield rf"\b(?!(?:{'|'.join(READS)})\b)\w+\((?:[^()]*, )?&(?:\w+->)*{place}\.\w"  # f(&queue->pace.poll_at)


def wrong_writes(name, text, field, patterns, writers):
    """Assignments to the field, or to what is in it, from a file that may not make them."""
    for pattern in patterns:
        for found in pattern.finditer(text):
            number = text.count("\n", 0, found.start()) + 1
            yield f"{name}:{number}: {found.group(0).strip()}: {field} is written by {', '.join(writers)} only"


def problems_in(sources, writing=None):
    """What is wrong in these sources, by their names; with `writing`, only writes in those files are looked for."""
    headers = {name: text for name, text in sources.items() if name.endswith(".h")}
    graph = included_modules(sources)
    for struct, (header, variable) in OWNED.items():
        _, body = body_of(sources[header], struct)
        knowing = {module for module in graph if os.path.splitext(header)[0] in {module, *reachable(graph, module)}}
        for field, group, writers in fields_of(body):
            defined = next(filter(None, (body_of(text, group) for text in headers.values())), None) if group else None
            of_group = defined and writers_in(defined[0])
            writers = of_group or writers
            if not writers:
                yield f"{header}: struct {struct}: nothing says who writes `{field}`"
                continue
            for path in writers:
                if path != EVERYBODY and not any(name.startswith(path) for name in sources):
                    yield f"{header}: struct {struct}: {field} is written by {path}, which is not there"
            for name, text in sources.items() if writing is None else ((name, sources[name]) for name in writing):
                if os.path.splitext(name)[0] in knowing and not is_writer(name, writers):
                    patterns = patterns_of(field, group if of_group else None, names_of(struct, variable, text))
                    yield from wrong_writes(name, text, field, map(re.compile, patterns), writers)


def relay_sources():
    return {name: read(name) for name in tracked("relay/*.c", "relay/*.h")}


def main():
    sources = relay_sources()
    problems = list(problems_in(sources))
    print("\n".join(problems) if problems else f"{len(sources)} files write only what is theirs")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
