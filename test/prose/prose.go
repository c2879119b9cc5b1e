// Package prose checks the language of this repository: its documents, comments, help texts,
// errors, logs and the OpenAPI document. Its table lists phrases for which English or the field has
// a better word, with the replacement. Allowed uses are listed next to it.
//
// A phrase is found across line ends. Code is not checked: code spans and fenced blocks of
// Markdown, identifiers in Go except names of tests, statements in SQL.
package prose

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Finding is one use of a phrase of the table.
type Finding struct {
	File string
	Line int
	// Phrase is the phrase that was found, and Instead the suggestion of the table.
	Phrase, Instead string
	// Comment is true for a comment of a source file.
	Comment bool
}

func (f Finding) String() string {
	return fmt.Sprintf("%s:%d: %q: write %s", f.File, f.Line, f.Phrase, f.Instead)
}

// passage is text that is checked as one piece, with the number of each of its lines.
type passage struct {
	lines   []line
	comment bool
}

type line struct {
	number int
	text   string
}

// Check returns the findings in a file. Other kinds of files than those named here have none.
func Check(file string, content []byte) ([]Finding, error) {
	var passages []passage
	var err error
	switch name, text := path.Base(file), string(content); {
	case name == "CHANGELOG.md":
		passages = markdown(unreleased(text))
	case path.Ext(name) == ".md":
		passages = markdown(text)
	case path.Ext(name) == ".go":
		passages, err = goFile(file, content)
	case path.Ext(name) == ".sql":
		passages = comments(text, "--")
	case name == "openapi.yaml":
		passages = paragraphs(text)
	case path.Ext(name) == ".sh", path.Ext(name) == ".yaml", path.Ext(name) == ".yml", name == "Makefile", name == "Dockerfile":
		passages = comments(text, "#")
	}
	if err != nil {
		return nil, err
	}
	var found []Finding
	for _, p := range passages {
		found = append(found, p.check(file)...)
	}
	slices.SortStableFunc(found, func(a, b Finding) int { return cmp.Compare(a.Line, b.Line) })
	return found, nil
}

// check compares a passage with the table. Its lines are joined by spaces.
func (p passage) check(file string) []Finding {
	var b strings.Builder
	starts := make([]int, len(p.lines))
	for i, l := range p.lines {
		starts[i] = b.Len()
		b.WriteString(strings.TrimSpace(l.text))
		b.WriteByte(' ')
	}
	text := withoutCode(b.String())
	var found []Finding
	for _, r := range table {
		for _, at := range r.phrase.FindAllStringIndex(text, -1) {
			if allowed(text, at) {
				continue
			}
			i, _ := slices.BinarySearch(starts, at[0]+1)
			found = append(found, Finding{
				File: file, Line: p.lines[i-1].number, Phrase: text[at[0]:at[1]], Instead: r.instead, Comment: p.comment,
			})
		}
	}
	return found
}

// allowed reports whether a use is within one that the allow list names.
func allowed(text string, at []int) bool {
	from, to := max(0, at[0]-60), min(len(text), at[1]+60)
	for _, a := range allow {
		for _, use := range a.FindAllStringIndex(text[from:to], -1) {
			if from+use[0] <= at[0] && at[1] <= from+use[1] {
				return true
			}
		}
	}
	return false
}

var (
	codeSpan = regexp.MustCompile("`[^`]*`")
	address  = regexp.MustCompile(`https?://\S+|\]\([^)]*\)`)
)

// withoutCode blanks code spans and addresses, and keeps every position.
func withoutCode(text string) string {
	for _, code := range []*regexp.Regexp{codeSpan, address} {
		text = code.ReplaceAllStringFunc(text, func(s string) string { return strings.Repeat("_", len(s)) })
	}
	return text
}

var (
	testName  = regexp.MustCompile(`^(Test|Fuzz|Benchmark)[A-Z]`)
	wordStart = regexp.MustCompile(`[A-Z]`)
)

// inWords converts a name in mixed capitals to a sentence.
func inWords(name string) string {
	return strings.ToLower(wordStart.ReplaceAllString(name, " $0"))
}

// unreleased returns the changelog up to its first release.
func unreleased(text string) string {
	_, after, ok := strings.Cut(text, "\n## Unreleased\n")
	if !ok {
		return ""
	}
	head := strings.Count(text[:len(text)-len(after)], "\n")
	section, _, _ := strings.Cut(after, "\n## ")
	return strings.Repeat("\n", head) + section
}

// markdown returns the paragraphs of a document outside its fenced blocks.
func markdown(text string) []passage {
	lines := strings.Split(text, "\n")
	fenced := false
	for i, l := range lines {
		fence := strings.HasPrefix(strings.TrimSpace(l), "```")
		if fence || fenced {
			lines[i] = ""
		}
		fenced = fenced != fence
	}
	return paragraphs(strings.Join(lines, "\n"))
}

// paragraphs returns the runs of lines between empty lines.
func paragraphs(text string) []passage {
	var all []passage
	var p passage
	for i, l := range append(strings.Split(text, "\n"), "") {
		switch {
		case strings.TrimSpace(l) != "":
			p.lines = append(p.lines, line{i + 1, l})
		case len(p.lines) > 0:
			all, p = append(all, p), passage{}
		}
	}
	return all
}

// comments returns the runs of lines that are comments, and comments after code.
func comments(text, mark string) []passage {
	var all []passage
	p := passage{comment: true}
	for i, l := range append(strings.Split(text, "\n"), "") {
		comment, ok := strings.CutPrefix(strings.TrimSpace(l), mark)
		if _, trailing, found := strings.Cut(l, " "+mark+" "); found && !ok {
			all = append(all, passage{[]line{{i + 1, trailing}}, true})
		}
		switch {
		case ok:
			p.lines = append(p.lines, line{i + 1, comment})
		case len(p.lines) > 0:
			all, p = append(all, p), passage{comment: true}
		}
	}
	return all
}

// goFile returns the comments of a Go file and, except in tests, its strings of more than one word:
// help texts, errors and logs.
func goFile(file string, content []byte) ([]passage, error) {
	set := token.NewFileSet()
	f, err := parser.ParseFile(set, file, content, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	if ast.IsGenerated(f) {
		return nil, nil
	}
	var all []passage
	names := documented(f)
	for _, group := range f.Comments {
		p := passage{comment: true}
		for _, c := range group.List {
			first := set.Position(c.Pos()).Line
			for i, l := range strings.Split(c.Text, "\n") {
				p.lines = append(p.lines, line{first + i, strings.TrimPrefix(strings.TrimPrefix(l, "//"), "/*")})
			}
		}
		if name := names[group]; name != "" && len(p.lines) > 0 {
			p.lines[0].text = strings.TrimPrefix(strings.TrimSpace(p.lines[0].text), name+" ")
		}
		all = append(all, p)
	}
	if strings.HasSuffix(file, "_test.go") {
		for _, d := range f.Decls {
			if function, ok := d.(*ast.FuncDecl); ok && testName.MatchString(function.Name.Name) {
				all = append(all, passage{lines: []line{{set.Position(function.Pos()).Line, inWords(function.Name.Name)}}})
			}
		}
	}
	ast.Inspect(f, func(n ast.Node) bool {
		literal, ok := n.(*ast.BasicLit)
		if !ok || literal.Kind != token.STRING {
			return true
		}
		// A line end within an interpreted string is not a line end of the file.
		lines := []string{literal.Value}
		if literal.Value[0] == '`' {
			lines = strings.Split(strings.Trim(literal.Value, "`"), "\n")
		} else if value, err := strconv.Unquote(literal.Value); err == nil {
			lines = []string{strings.ReplaceAll(value, "\n", " ")}
		}
		if !strings.Contains(strings.Join(lines, "\n"), " ") {
			return true
		}
		var p passage
		for i, l := range lines {
			p.lines = append(p.lines, line{set.Position(literal.Pos()).Line + i, l})
		}
		all = append(all, p)
		return true
	})
	return all, nil
}

// documented returns the names with which doc comments begin: they are code, not English.
func documented(f *ast.File) map[*ast.CommentGroup]string {
	names := map[*ast.CommentGroup]string{}
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			names[n.Doc] = n.Name.Name
		case *ast.Field:
			if len(n.Names) > 0 {
				names[n.Doc], names[n.Comment] = n.Names[0].Name, n.Names[0].Name
			}
		case *ast.GenDecl:
			if len(n.Specs) == 1 {
				names[n.Doc] = specName(n.Specs[0])
			}
		case *ast.TypeSpec:
			names[n.Doc] = n.Name.Name
		case *ast.ValueSpec:
			names[n.Doc] = n.Names[0].Name
		}
		return true
	})
	return names
}

func specName(s ast.Spec) string {
	switch s := s.(type) {
	case *ast.TypeSpec:
		return s.Name.Name
	case *ast.ValueSpec:
		return s.Names[0].Name
	}
	return ""
}
