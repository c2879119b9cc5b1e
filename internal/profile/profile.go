package profile

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/overwinter-dev/overwinter/internal/failure"
	"github.com/overwinter-dev/overwinter/internal/lazyregexp"
	"github.com/overwinter-dev/overwinter/internal/permission"
)

// Prefix is the prefix of profile ids.
const Prefix = "prf_"

// Limits of a profile. The size of a request is also limited as a whole.
const (
	MaxItems       = 100 // of each kind
	MaxDescription = 1000
	MaxModelRunes  = 200 // also in a session's own options
)

// Profile is one version of a named configuration of agents.
type Profile struct {
	ID          string
	Name        string
	Description string
	Version     int64 // 1, 2, …
	Spec        Spec
	CreatedAt   time.Time
	UpdatedAt   time.Time // of the newest version
}

// Ref returns ID@VERSION, which a session stores.
func (p Profile) Ref() string { return p.ID + "@" + strconv.FormatInt(p.Version, 10) }

// Version is one version of a profile, without its content.
type Version struct {
	ProfileID string
	Version   int64
	CreatedAt time.Time
}

// Ref returns ID@VERSION, as in a session.
func (v Version) Ref() string { return Profile{ID: v.ProfileID, Version: v.Version}.Ref() }

// ParseRef parses the id or name and the version of a profile; 0 if no version is given.
func ParseRef(ref string) (profile string, version int64, err error) {
	profile, number, found := strings.Cut(ref, "@")
	if found {
		version, err = strconv.ParseInt(number, 10, 64)
		if err != nil || version < 1 {
			return "", 0, fmt.Errorf("invalid profile version %q: must be a positive integer", number)
		}
	}
	return profile, version, nil
}

// Spec is an agent's configuration in addition to its defaults. The adapter decides how the agent
// gets it, and reports unsupported parts.
type Spec struct {
	// Instructions are added to the agent's instructions at the start of every conversation.
	Instructions string `json:"instructions,omitempty"`
	// Skills, Subagents and Commands have names that are unique of their kind.
	Skills     []Text      `json:"skills,omitempty"`
	Subagents  []Text      `json:"subagents,omitempty"`
	Commands   []Text      `json:"commands,omitempty"`
	MCPServers []MCPServer `json:"mcpServers,omitempty"`
	// Files are written into the workspace before the agent starts.
	Files []File `json:"files,omitempty"`
	// OverwinterTools is false for agents that are not offered the tools of overwinter itself.
	OverwinterTools *bool `json:"overwinterTools,omitempty"`
	// Model applies if the session's options name none.
	Model string `json:"model,omitempty"`
	// Environment is added to the agent's. It must not contain secrets.
	Environment map[string]string `json:"environment,omitempty"`
	// Secrets are the names of stored secrets that the agent gets as variables, in addition to
	// those of its adapter. A turn fails if one is not stored.
	Secrets     []string         `json:"secrets,omitempty"`
	Permissions permission.Rules `json:"permissions,omitzero"`
}

// Text is a skill, a subagent or a command.
type Text struct {
	Name        string `json:"name"` // lower-case letters, digits and hyphens
	Description string `json:"description,omitempty"`
	Content     string `json:"content"` // Markdown, without front matter
}

// MCPServer is a server of the Model Context Protocol: a program in the sandbox if Command is set,
// otherwise a remote server at URL.
type MCPServer struct {
	Name        string            `json:"name"`
	Command     string            `json:"command,omitempty"`
	Args        []string          `json:"args,omitempty"`
	Environment map[string]string `json:"environment,omitempty"`
	URL         string            `json:"url,omitempty"`
	Headers     map[string]string `json:"headers,omitempty"`
}

// File is a file of the workspace.
type File struct {
	Path    string `json:"path"` // relative to the workspace
	Content string `json:"content"`
}

var (
	itemName = lazyregexp.New(`^[a-z0-9][a-z0-9-]{0,63}$`)
	variable = lazyregexp.New(`^[A-Za-z_][A-Za-z0-9_]{0,127}$`)
	// secretVariable matches the name of a secret that can be a variable.
	secretVariable = lazyregexp.New(`^[A-Z_][A-Z0-9_]{0,127}$`)
)

// ownName matches a profile's name: not an id, and without a part that looks like a version.
var ownName = lazyregexp.New(`^[A-Za-z0-9][A-Za-z0-9 ._-]{0,99}$`)

// ValidName reports whether a name is valid for a profile.
func ValidName(name string) bool {
	return ownName.MatchString(name) && !strings.HasPrefix(name, Prefix)
}

// Check returns the errors in the spec, field by field.
func (s Spec) Check() []failure.Field {
	var c check
	if n := utf8.RuneCountInString(s.Model); n > MaxModelRunes {
		c.refuse("model", "is %d characters long; at most %d are allowed", n, MaxModelRunes)
	}
	c.texts("skills", s.Skills)
	c.texts("subagents", s.Subagents)
	c.texts("commands", s.Commands)
	c.servers(s.MCPServers)
	c.files(s.Files)
	c.environment("environment", s.Environment)
	c.secrets(s.Secrets, s.Environment)
	if s.Permissions.Default != "" && !s.Permissions.Default.Known() {
		c.refuse("permissions.default", "must be one of: allow, ask, deny")
	}
	for _, tool := range slices.Sorted(maps.Keys(s.Permissions.Tools)) {
		if tool == "" || !s.Permissions.Tools[tool].Known() {
			c.refuse("permissions.tools."+tool, "must be one of: allow, ask, deny, under the name of a tool")
		}
	}
	return c.wrong
}

// A profile may set the variables of overwinter that configure agents: names that begin with
// acpVariables configure the agent acp; modelTimeoutVariable sets how long a turn continues while
// all requests to the model fail, and modelTimeoutAlias is its earlier name.
const (
	acpVariables         = "OVERWINTER_ACP_"
	modelTimeoutVariable = "OVERWINTER_MODEL_TIMEOUT"
	modelTimeoutAlias    = "OVERWINTER_PATIENCE"
)

type check struct{ wrong []failure.Field }

func (c *check) refuse(field, format string, args ...any) {
	c.wrong = append(c.wrong, failure.Field{Field: field, Message: fmt.Sprintf(format, args...)})
}

// name checks the i-th name of a list and returns whether it is a repetition.
func (c *check) name(list string, i int, name string, seen map[string]bool) {
	field := fmt.Sprintf("%s[%d].name", list, i)
	switch {
	case !itemName.MatchString(name):
		c.refuse(field, "must be 1 to 64 of a-z 0-9 - and not begin with a hyphen")
	case seen[name]:
		c.refuse(field, "is a duplicate: %s", name)
	}
	seen[name] = true
}

func (c *check) count(list string, n int) {
	if n > MaxItems {
		c.refuse(list, "has %d items; at most %d are allowed", n, MaxItems)
	}
}

func (c *check) texts(list string, items []Text) {
	c.count(list, len(items))
	seen := map[string]bool{}
	for i, item := range items {
		c.name(list, i, item.Name, seen)
		if n := utf8.RuneCountInString(item.Description); n > MaxDescription || strings.ContainsAny(item.Description, "\r\n") {
			c.refuse(fmt.Sprintf("%s[%d].description", list, i), "must be one line of at most %d characters", MaxDescription)
		}
		if strings.TrimSpace(item.Content) == "" {
			c.refuse(fmt.Sprintf("%s[%d].content", list, i), "must not be empty")
		}
	}
}

func (c *check) servers(servers []MCPServer) {
	c.count("mcpServers", len(servers))
	seen := map[string]bool{}
	for i, s := range servers {
		c.name("mcpServers", i, s.Name, seen)
		field := fmt.Sprintf("mcpServers[%d]", i)
		switch {
		case (s.Command == "") == (s.URL == ""):
			c.refuse(field, "must have either a command or a url")
		case s.URL != "" && !strings.HasPrefix(s.URL, "http://") && !strings.HasPrefix(s.URL, "https://"):
			c.refuse(field+".url", "must begin with http:// or https://")
		case s.URL != "" && len(s.Args)+len(s.Environment) > 0:
			c.refuse(field, "has a url and cannot have args or environment")
		case s.Command != "" && len(s.Headers) > 0:
			c.refuse(field, "has a command and cannot have headers")
		}
		c.environment(field+".environment", s.Environment)
	}
}

func (c *check) files(files []File) {
	c.count("files", len(files))
	seen := map[string]bool{}
	for i, f := range files {
		field := fmt.Sprintf("files[%d].path", i)
		clean := path.Clean(f.Path)
		switch {
		case f.Path == "" || len(f.Path) > 1024 || clean != f.Path || path.IsAbs(clean) || clean == "." || clean == ".." || strings.HasPrefix(clean, "../"):
			c.refuse(field, "must be a path of at most 1024 bytes within the workspace, such as docs/notes.md")
		case clean == ".git" || strings.HasPrefix(clean, ".git/"):
			c.refuse(field, "must not be within .git")
		case seen[clean]:
			c.refuse(field, "is a duplicate: %s", clean)
		}
		seen[clean] = true
	}
}

func (c *check) secrets(names []string, env map[string]string) {
	c.count("secrets", len(names))
	seen := map[string]bool{}
	for i, name := range names {
		field := fmt.Sprintf("secrets[%d]", i)
		switch {
		case !secretVariable.MatchString(name) || !settable(name):
			c.refuse(field, "must be the name of a secret that is a variable, such as ANTHROPIC_API_KEY")
		case seen[name]:
			c.refuse(field, "is a duplicate: %s", name)
		case env[name] != "":
			c.refuse(field, "is also in environment: %s", name)
		}
		seen[name] = true
	}
}

// settable reports whether a profile may set the variable.
func settable(name string) bool {
	return !strings.HasPrefix(name, "OVERWINTER_") || strings.HasPrefix(name, acpVariables) ||
		name == modelTimeoutVariable || name == modelTimeoutAlias
}

func (c *check) environment(field string, env map[string]string) {
	c.count(field, len(env))
	for _, name := range slices.Sorted(maps.Keys(env)) {
		if !settable(name) || !variable.MatchString(name) {
			c.refuse(field+"."+name, "must be the name of a variable: letters, digits and _; names that begin with OVERWINTER_ are reserved, except %s… and %s",
				acpVariables, modelTimeoutVariable)
		}
	}
}
