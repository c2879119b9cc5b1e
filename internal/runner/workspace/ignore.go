package workspace

import (
	"path"
	"strings"

	"github.com/bmatcuk/doublestar/v4"
)

// Bounds of one ignore file. The rest is not read.
const (
	maxIgnoreBytes = 64 << 10
	maxRules       = 2000
)

// rule is one line of an ignore file.
type rule struct {
	pattern  string // in the syntax of doublestar
	negated  bool
	dirsOnly bool
	anchored bool // to the directory of the file; otherwise it matches names at any depth
}

// rules are the rules of one ignore file, for files below dir.
type rules struct {
	dir  string // relative to the workspace, which is ""
	list []rule
}

// parseRules parses an ignore file. It skips lines without a pattern.
func parseRules(dir, text string) rules {
	out := rules{dir: dir}
	for line := range strings.SplitSeq(text, "\n") {
		if r, ok := parseRule(strings.TrimSuffix(line, "\r")); ok && len(out.list) < maxRules {
			out.list = append(out.list, r)
		}
	}
	return out
}

func parseRule(line string) (rule, bool) {
	if strings.HasPrefix(line, "#") {
		return rule{}, false
	}
	for strings.HasSuffix(line, " ") && !strings.HasSuffix(line, `\ `) {
		line = line[:len(line)-1]
	}
	var r rule
	if rest, ok := strings.CutPrefix(line, "!"); ok {
		r.negated, line = true, rest
	}
	if rest, ok := strings.CutSuffix(line, "/"); ok {
		r.dirsOnly, line = true, rest
	}
	r.anchored = strings.Contains(line, "/")
	line = strings.TrimPrefix(line, "/")
	if line == "" {
		return rule{}, false
	}
	line = strings.ReplaceAll(line, "[!", "[^")
	r.pattern = literalBraces.Replace(line)
	if dir, ok := strings.CutSuffix(r.pattern, "/**"); ok {
		r.pattern = dir + "/**/*" // everything below the directory, without the directory itself
	}
	return r, doublestar.ValidatePattern(r.pattern)
}

// literalBraces escapes braces, which are alternatives in doublestar but not in git.
var literalBraces = strings.NewReplacer(`\\`, `\\`, `\{`, `\{`, `\}`, `\}`, `{`, `\{`, `}`, `\}`)

// ignored reports whether the rules ignore a path below their directory. decided is false if none of
// them matches.
func (r rules) ignored(name string, isDir bool) (ignored, decided bool) {
	if r.dir != "" {
		name = strings.TrimPrefix(name, r.dir+"/")
	}
	for i := len(r.list) - 1; i >= 0; i-- {
		one := r.list[i]
		if one.dirsOnly && !isDir {
			continue
		}
		if one.matches(name) {
			return !one.negated, true
		}
	}
	return false, false
}

func (r rule) matches(name string) bool {
	if !r.anchored {
		name = path.Base(name)
	}
	return doublestar.MatchUnvalidated(r.pattern, name)
}

// ignores are the rules that apply in a directory, innermost last.
type ignores []rules

func (i ignores) ignored(name string, isDir bool) bool {
	for j := len(i) - 1; j >= 0; j-- {
		if ignored, decided := i[j].ignored(name, isDir); decided {
			return ignored
		}
	}
	return false
}
