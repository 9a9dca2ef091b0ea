"""The commands of `topics`, in groups, and the help that lists them. A command is a module with `add_parser`.

Imports nothing: `topics --help` and `topics --version` cost little more than the interpreter's own start.
"""

# Group to command to its module and what it does in a few words.
GROUPS: dict[str, dict[str, tuple[str, str]]] = {
    "Start here": {
        "demo": ("topics.cli.demo", "a server with a living shop in it, until Ctrl-C"),
        "serve": ("topics.cli.serve", "run the server"),
        "doctor": ("topics.cli.doctor", "check settings, disk, limits and server; say what to change"),
    },
    "Records": {
        "put": ("topics.cli.put", "write records, from the command line or from stdin"),
        "tail": ("topics.cli.tail", "read the last records, and follow"),
        "watch": ("topics.cli.watch", "everything that happens to topics from now on"),
        "delete": ("topics.cli.delete", "delete records, after showing which"),
    },
    "Topics": {
        "ls": ("topics.cli.ls", "list topics"),
        "show": ("topics.cli.show", "one topic: state, configuration, readers, losses"),
        "create": ("topics.cli.create", "create a topic or a queue"),
        "config": ("topics.cli.config", "show or change a topic's configuration"),
        "rm": ("topics.cli.rm", "delete topics with all they hold"),
        "cursor": ("topics.cli.cursor", "named cursors: how far somebody has read"),
        "router": ("topics.cli.router", "routers: copies from topic to topic"),
    },
    "Queues": {
        "queue": ("topics.cli.queue", "claim, ack, nack, extend, peek, leases, redrive"),
        "work": ("topics.cli.work", "run a shell command for each job"),
    },
    "Operating": {
        "top": ("topics.cli.top", "live screen: rates, lag, queues, the server itself"),
        "settings": ("topics.cli.settings", "check or show the settings a server would use"),
        "keys": ("topics.cli.keys", "make API keys"),
        "verify": ("topics.cli.verify", "check every byte of a data directory"),
        "inspect": ("topics.cli.inspect", "dump a WAL file, a segment or a snapshot"),
        "backup": ("topics.cli.backup", "copy a data directory while the server runs"),
        "restore": ("topics.cli.restore", "make a data directory from a backup"),
    },
    "More": {
        "pipeline": ("topics.cli.pipeline", "bulk jobs on Spark"),
        "bench": ("topics.bench.command", "measure this server beside its peers"),
        "completion": ("topics.cli.completion", "tab completion for bash, zsh and fish"),
    },
}

# Asked by the shell's completion, and by nobody else.
HIDDEN = {"complete": "topics.cli.complete"}

MODULES = HIDDEN | {name: module for group in GROUPS.values() for name, (module, _) in group.items()}

EXAMPLES = """\
Examples:
  topics demo                                     # something to look at, in one command
  topics put orders '{"sku":1}' --tag vip:7       # write a record
  topics tail orders -f                           # read, and follow
  topics create resize --queue && topics work resize -- ./resize.sh
"""

ENDING = """\
TOPICS_URL names the server (http://127.0.0.1:4000), TOPICS_API_KEY the key to it.
`topics COMMAND --help` explains each; docs/cli.md has everything, with exit codes.
"""


def names() -> list[str]:
    return [name for group in GROUPS.values() for name in group]


def overview(bold: str = "", plain: str = "") -> str:
    """The help of `topics`: `bold` and `plain` are what a terminal takes for the headings."""
    width = max(map(len, names()))
    parts = [f"{bold}usage:{plain} topics [--url URL] COMMAND …\n"]
    for title, commands in GROUPS.items():
        lines = "".join(f"  {name:<{width}}  {what}\n" for name, (_, what) in commands.items())
        parts.append(f"{bold}{title}{plain}\n{lines}")
    heading, _, lines = EXAMPLES.partition("\n")
    return "\n".join([*parts, f"{bold}{heading}{plain}\n{lines}", ENDING])
