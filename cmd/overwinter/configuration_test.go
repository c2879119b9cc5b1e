package main

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write docs/configuration.md")

const (
	configurationFile = "../../docs/configuration.md"
	configurationHead = `# Configuration

Every flag of the commands that run a part of overwinter, printed from their definitions by
` + "`go test ./cmd/overwinter -run TestConfigurationIsDocumented -update`" + `. A flag overrides its environment variable. Pass keys and
passwords in variables: every user of a machine can read the arguments of its programs. What settings mean in practice:
[operations](operations.md); every bound: [limits](limits.md). The data directory of users other than
root is ` + "`~/.local/share/overwinter`" + `. ` + "`overwinter session COMMAND --help`" + ` has the flags of the client, and
` + "`overwinter-temporal --help`" + ` those of the Temporal server for one machine.
`
	configurationFoot = `
## Variables of a profile

These variables in a profile's ` + "`environment`" + ` (` + "`OVERWINTER_ACP_COMMAND`" + ` may also be a secret) configure the agent. Other
names that begin with ` + "`OVERWINTER_`" + ` are reserved.

| variable | agents | default | meaning |
|---|---|---|---|
| ` + "`OVERWINTER_ACP_COMMAND`" + ` | acp | none | The command line of the agent: a JSON array of strings, or a line for the shell. |
| ` + "`OVERWINTER_ACP_TRANSCRIPTS`" + ` | acp | none | Glob patterns of the files with the agent's memory, relative to its home, separated by colons. |
| ` + "`OVERWINTER_MODEL_TIMEOUT`" + ` | acp, codex, gemini-cli, opencode | 5m, of acp 10m | How long a turn continues while the model does not respond. ` +
		"`OVERWINTER_PATIENCE`" + ` is an alias, the earlier name. |
| ` + "`CLAUDE_CODE_MAX_RETRIES`" + ` | claude-sdk | 10 | How often a request to the model is repeated. |
`
)

// operated are the commands in the document, in its order.
var operated = []string{"dev", "api", "worker", "local-modal", "migrate up", "secret rotate", "session"}

// setting is a flag with the commands that have it.
type setting struct {
	flag, variable, fallback, meaning string
	commands                          []string
}

// TestConfigurationIsDocumented compares docs/configuration.md with the flags.
func TestConfigurationIsDocumented(t *testing.T) {
	t.Parallel()
	want := configuration(t)
	if *update {
		require.NoError(t, os.WriteFile(configurationFile, []byte(want), 0o600))
	}
	got, err := os.ReadFile(configurationFile)
	require.NoError(t, err)
	require.Equal(t, want, string(got), "go test ./cmd/overwinter -run TestConfigurationIsDocumented -update")
}

// configuration writes one table for each set of commands that share flags.
func configuration(t *testing.T) string {
	t.Helper()
	var out strings.Builder
	out.WriteString(configurationHead)
	tables, order := map[string][]setting{}, []string{}
	for _, s := range settings(t) {
		title := strings.Join(s.commands, ", ")
		if len(s.commands) == len(operated) {
			title = "All commands"
		}
		if tables[title] == nil {
			order = append(order, title)
		}
		tables[title] = append(tables[title], s)
	}
	for _, title := range order {
		fmt.Fprintf(&out, "\n## %s\n\n| flag | variable | default | meaning |\n|---|---|---|---|\n", title)
		for _, s := range tables[title] {
			variable := ""
			if s.variable != "" {
				variable = "`" + s.variable + "`"
			}
			fmt.Fprintf(&out, "| `%s` | %s | %s | %s |\n", s.flag, variable, s.fallback, s.meaning)
		}
	}
	out.WriteString(configurationFoot)
	return out.String()
}

// settings returns the visible flags, each once with all commands that define it in the same way.
func settings(t *testing.T) []setting {
	t.Helper()
	parser, err := new(commands).parser("/var/lib/overwinter")
	require.NoError(t, err)
	var all []setting
	for _, command := range operated {
		node := parser.Model.Node
		flags := slices.Clone(node.Flags)
		for name := range strings.FieldsSeq(command) {
			i := slices.IndexFunc(node.Children, func(n *kong.Node) bool { return n.Name == name })
			require.GreaterOrEqual(t, i, 0, command)
			node = node.Children[i]
			flags = append(flags, node.Flags...)
		}
		for _, f := range flags {
			if f.Hidden || f.Name == "help" {
				continue
			}
			s := newSetting(f)
			same := func(o setting) bool {
				return o.flag == s.flag && o.variable == s.variable && o.fallback == s.fallback && o.meaning == s.meaning
			}
			i := slices.IndexFunc(all, same)
			if i < 0 {
				i, all = len(all), append(all, s)
			}
			all[i].commands = append(all[i].commands, command)
		}
	}
	return all
}

// theDefault matches the default at the end of a flag's help.
var theDefault = regexp.MustCompile(`\s*Default:? ([^.]*(?:\.[^ .][^.]*)*)\.$`)

func newSetting(f *kong.Flag) setting {
	s := setting{flag: "--" + f.Name, fallback: "none", meaning: strings.ReplaceAll(f.Help, "|", "\\|")}
	if !f.IsBool() {
		s.flag += " " + f.FormatPlaceHolder()
	}
	if len(f.Envs) > 0 {
		s.variable = f.Envs[0]
	}
	switch found := theDefault.FindStringSubmatch(s.meaning); {
	case f.Required:
		s.fallback = "required"
	case found != nil && found[1] == f.Default:
		s.fallback = "`" + f.Default + "`"
	case found != nil:
		s.fallback = found[1]
	case f.IsBool():
		s.fallback = "off"
	}
	s.meaning = theDefault.ReplaceAllString(s.meaning, "")
	return s
}
