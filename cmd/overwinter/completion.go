package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

// completionCmd prints the script of a shell. The scripts call this program for candidates, so they
// stay valid when flags change.
type completionCmd struct {
	Bash  shellCmd `cmd:"" help:"Print the script for bash: source <(overwinter completion bash)"`
	Zsh   shellCmd `cmd:"" help:"Print the script for zsh: source <(overwinter completion zsh)"`
	Fish  shellCmd `cmd:"" help:"Print the script for fish: overwinter completion fish | source"`
	Words wordsCmd `cmd:"" hidden:"" help:"Print completions of a command line."`
}

var completionScripts = map[string]string{
	"bash": `_overwinter() {
	local IFS=$'\n'
	COMPREPLY=($(compgen -W "$(overwinter completion words -- "${COMP_WORDS[@]:1:COMP_CWORD-1}" 2>/dev/null)" -- "${COMP_WORDS[COMP_CWORD]}"))
}
complete -o default -F _overwinter overwinter
`,
	"zsh": `_overwinter() {
	local -a candidates
	candidates=(${(f)"$(overwinter completion words -- ${words[2,CURRENT-1]} 2>/dev/null)"})
	compadd -a candidates || _files
}
compdef _overwinter overwinter
`,
	"fish": `complete -c overwinter -a '(overwinter completion words -- (commandline -opc)[2..-1] 2>/dev/null)'
`,
}

// shellCmd prints a script.
type shellCmd struct{}

// Run prints the script of the shell that the command is named for.
func (shellCmd) Run(s streams, command *kong.Context) error {
	_, err := fmt.Fprint(s.stdout, completionScripts[command.Selected().Name])
	return err
}

// wordsCmd finds candidates.
type wordsCmd struct {
	Words []string `arg:"" optional:"" passthrough:"" help:"The words before the one to complete."`
}

// Run prints the candidates, one per line.
func (c *wordsCmd) Run(s streams, parser *kong.Kong) error {
	for _, word := range candidates(parser.Model.Node, c.Words) {
		if _, err := fmt.Fprintln(s.stdout, word); err != nil {
			return err
		}
	}
	return nil
}

// candidates returns the commands, flags or values that may follow words.
func candidates(node *kong.Node, words []string) []string {
	if len(words) > 0 && words[0] == "--" {
		words = words[1:]
	}
	flags := slices.Clone(node.Flags)
	var last *kong.Flag // the flag whose value is the word to complete
	for _, word := range words {
		if last != nil {
			last = nil
			continue
		}
		if name, isFlag := strings.CutPrefix(word, "-"); isFlag {
			name = strings.TrimPrefix(name, "-")
			i := slices.IndexFunc(flags, func(f *kong.Flag) bool { return f.Name == name || f.Short != 0 && string(f.Short) == name })
			if i >= 0 && !flags[i].IsBool() {
				last = flags[i]
			}
			continue
		}
		if i := slices.IndexFunc(node.Children, func(n *kong.Node) bool { return n.Name == word }); i >= 0 {
			node = node.Children[i]
			flags = append(flags, node.Flags...)
		}
	}
	var found []string
	if last != nil {
		for _, value := range last.EnumSlice() {
			if value != "" {
				found = append(found, value)
			}
		}
		return found
	}
	for _, child := range node.Children {
		if !child.Hidden {
			found = append(found, child.Name)
		}
	}
	for _, f := range flags {
		if !f.Hidden {
			found = append(found, "--"+f.Name)
		}
	}
	return found
}
