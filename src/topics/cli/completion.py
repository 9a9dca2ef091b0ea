"""`topics completion SHELL`: a script that teaches a shell to complete `topics`. It asks `topics complete`."""

import argparse

from topics.cli.parser import Commands, examples

BASH = r"""# bash completion of topics. Put this into ~/.bashrc:  eval "$(topics completion bash)"
_topics() {
    local words current
    # Split by blanks alone: chat:general is one word, whatever COMP_WORDBREAKS says.
    read -ra words <<<"${COMP_LINE:0:COMP_POINT}"
    [[ "${COMP_LINE:COMP_POINT-1:1}" == " " ]] && words+=("")
    current="${words[${#words[@]}-1]}"
    local IFS=$'\n'
    COMPREPLY=($(topics complete -- "${words[@]:1}" 2>/dev/null | cut -f1))
    # Bash replaces only what is behind the last colon.
    if [[ "$current" == *:* && "$COMP_WORDBREAKS" == *:* ]]; then
        COMPREPLY=("${COMPREPLY[@]#"${current%"${current##*:}"}"}")
    fi
}
complete -o default -F _topics topics
"""

ZSH = r"""#compdef topics
# zsh completion of topics. Put this into ~/.zshrc, after compinit:  eval "$(topics completion zsh)"
_topics() {
    local -a names shown
    local name what
    while IFS=$'\t' read -r name what; do
        names+=("$name")
        shown+=("$name${what:+  -- $what}")
    done < <(topics complete -- "${(@)words[2,CURRENT]}" 2>/dev/null)
    if (( $#names )); then
        compadd -l -d shown -a names
    else
        _files
    fi
}
compdef _topics topics
"""

FISH = r"""# fish completion of topics. Put it where fish looks:
#   topics completion fish > ~/.config/fish/completions/topics.fish
function __topics_complete
    set -l words (commandline -opc) (commandline -ct)
    topics complete -- $words[2..-1] 2>/dev/null
end
complete -c topics -n 'not __fish_seen_subcommand_from verify inspect backup restore serve put' -f
complete -c topics -a '(__topics_complete)'
"""

SCRIPTS = {"bash": BASH, "zsh": ZSH, "fish": FISH}


def add_parser(commands: Commands) -> None:
    parser = commands.add_parser(
        "completion",
        description="Prints a script that completes commands, options, and the names of topics and routers on the "
        "server of TOPICS_URL.",
        epilog=examples(
            'eval "$(topics completion bash)"      # in ~/.bashrc',
            'eval "$(topics completion zsh)"       # in ~/.zshrc',
            "topics completion fish > ~/.config/fish/completions/topics.fish",
        ),
    )
    parser.add_argument("shell", metavar="SHELL", choices=tuple(SCRIPTS), help=" or ".join(SCRIPTS))
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    print(SCRIPTS[args.shell], end="")
    return 0
