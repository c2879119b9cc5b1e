package portable

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"path"
	"strings"
	"time"
	"unicode/utf8"
)

const (
	// Format is the format of every manifest.
	Format = "overwinter-bundle"
	// Version is raised for changes that an earlier reader would misinterpret.
	Version = 1
)

// The names of entries.
const (
	RepositoryEntry   = "repository.bundle"
	ConversationEntry = "conversation.jsonl"
	manifestEntry     = "manifest.json"
	workspaceDir      = "workspace/"
	agentDir          = "agent/"
)

// The agent's directories in every sandbox. Archives always have the paths of a sandbox, whatever
// their origin.
const (
	Workspace = "/workspace"
	Home      = "/root"
)

// Limits of an archive.
const (
	MaxArchiveBytes = 256 << 20 // compressed
	MaxBytes        = 512 << 20 // of all entries together
	maxEntries      = 20_000
	maxPathBytes    = 1024
	maxMissing      = 200 // items of Manifest.Missing
	maxSecrets      = 200 // names in Session.Secrets
	maxManifest     = 16 << 20
	// MaxWorkspaceEntries leaves room for the agent's own files, which follow those of the
	// workspace, because a session needs them for its memory.
	MaxWorkspaceEntries = maxEntries - 4100
)

// Manifest describes an archive. Fields are added and never renamed.
type Manifest struct {
	Format    string    `json:"format"`
	Version   int       `json:"version"`
	Release   string    `json:"release,omitempty"` // of the program that created it
	CreatedAt time.Time `json:"createdAt"`
	Source    Source    `json:"source"`
	Session   Session   `json:"session"`
	// MemoryID is the id of the session under which the agent keeps its memory.
	MemoryID string `json:"memoryId"`
	// Workspace and Home are the absolute paths of the agent's directories.
	Workspace string `json:"workspace"`
	Home      string `json:"home"`
	Git       *Git   `json:"git,omitempty"` // nil if the workspace is not a repository
	// Deleted are paths that are in the repository's head but not in the workspace.
	Deleted []string `json:"deleted,omitempty"`
	Entries []Entry  `json:"entries"`
	// Missing lists the parts that are missing from the archive, for people.
	Missing []string `json:"missing,omitempty"`
}

// Source is the origin of an archive.
type Source struct {
	SessionID string `json:"sessionId,omitempty"`
	BundleID  string `json:"bundleId,omitempty"`
	PromptID  string `json:"promptId,omitempty"` // newest prompt in the agent's memory
	Outcome   string `json:"outcome,omitempty"`  // of its turn
	// Place describes the location of the workspace for people, such as "/home/ada/src on laptop".
	Place string `json:"place,omitempty"`
}

// Session has the settings of the session to create.
type Session struct {
	Agent     string          `json:"agent"`
	Title     string          `json:"title,omitempty"`
	Profile   string          `json:"profile,omitempty"` // by name; another installation may not have it
	Secrets   []string        `json:"secrets,omitempty"` // names of those that the agent could use; another installation may not have them
	Workspace json.RawMessage `json:"workspace,omitempty"`
	Options   json.RawMessage `json:"options,omitempty"`
	Metadata  json.RawMessage `json:"metadata,omitempty"`
}

// Git is the state of a workspace's repository.
type Git struct {
	Head   string `json:"head,omitempty"`   // commit; empty before the first
	Branch string `json:"branch,omitempty"` // empty if the head is detached
	Remote string `json:"remote,omitempty"` // origin, without credentials
}

// Entry is one entry of the archive.
type Entry struct {
	Name string `json:"name"`
	// Path is the absolute path of one of the agent's own files.
	Path   string      `json:"path,omitempty"`
	Mode   fs.FileMode `json:"mode,omitempty"` // permission bits
	Link   string      `json:"link,omitempty"` // target of a symbolic link
	Size   int64       `json:"size"`
	SHA256 string      `json:"sha256"` // of the content; of a link, of its target
}

// WorkspacePath returns the relative path of a file of the workspace; false for other entries.
func (e Entry) WorkspacePath() (string, bool) { return strings.CutPrefix(e.Name, workspaceDir) }

// AgentFile reports whether the entry is one of the agent's own files.
func (e Entry) AgentFile() bool { return strings.HasPrefix(e.Name, agentDir) }

// check returns the error in a manifest apart from its entries.
func (m Manifest) check() error {
	switch {
	case m.Format != Format:
		return fmt.Errorf("manifest.json: format must be %q", Format)
	case m.Version < 1 || m.Version > Version:
		return fmt.Errorf("manifest.json: version %d is not known; this program knows versions up to %d", m.Version, Version)
	case len(m.Missing) > maxMissing+1:
		return fmt.Errorf("manifest.json: missing has %d items; at most %d are allowed", len(m.Missing), maxMissing+1)
	}
	if len(m.Session.Secrets) > maxSecrets {
		return fmt.Errorf("manifest.json: session.secrets has %d items; at most %d are allowed", len(m.Session.Secrets), maxSecrets)
	}
	if m.Git != nil && m.Git.Head != "" && !isCommit(m.Git.Head) {
		return fmt.Errorf("manifest.json: git.head %q is not the ID of a commit", m.Git.Head)
	}
	if m.Git != nil && !validBranch(m.Git.Branch) {
		return fmt.Errorf("manifest.json: git.branch %q is not the name of a branch", m.Git.Branch)
	}
	for _, p := range m.Deleted {
		if err := checkPath(p); err != nil {
			return fmt.Errorf("manifest.json: deleted: %w", err)
		}
	}
	return nil
}

func isCommit(s string) bool {
	return (len(s) == 40 || len(s) == 64) && strings.Trim(s, "0123456789abcdef") == ""
}

// validBranch matches names that git accepts as a branch and that it cannot interpret as an option
// or an expression.
func validBranch(name string) bool {
	if name == "" {
		return true
	}
	if len(name) > 255 || !fs.ValidPath(name) || name == "." || strings.HasPrefix(name, "-") || strings.Contains(name, "..") || strings.Contains(name, "@{") {
		return false
	}
	for part := range strings.SplitSeq(name, "/") {
		if strings.HasPrefix(part, ".") || strings.HasSuffix(part, ".lock") || strings.HasSuffix(part, ".") {
			return false
		}
	}
	return utf8.ValidString(name) && !strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r == 0x7f || strings.ContainsRune(`~^:?*[\`, r) })
}

// checkPath returns an error unless a path is within a workspace and outside of git's own
// directory.
func checkPath(p string) error {
	switch {
	case len(p) > maxPathBytes:
		return fmt.Errorf("path %.40q… has %d bytes; at most %d are allowed", p, len(p), maxPathBytes)
	case !fs.ValidPath(p) || p == "." || strings.ContainsRune(p, 0) || !utf8.ValidString(p):
		return fmt.Errorf("path %q must be relative, clean, UTF-8 and within the workspace", p)
	}
	for part := range strings.SplitSeq(p, "/") {
		if strings.EqualFold(part, ".git") {
			return fmt.Errorf("path %q is within git's own directory", p)
		}
	}
	return nil
}

// LinkStaysWithin reports whether the target of a symbolic link at a path of the workspace is
// within it, judging by its text.
func LinkStaysWithin(p, target string) bool {
	if target == "" || len(target) > maxPathBytes || path.IsAbs(target) || !utf8.ValidString(target) || strings.ContainsRune(target, 0) {
		return false
	}
	to := path.Join(path.Dir(p), target)
	if to == ".." || strings.HasPrefix(to, "../") {
		return false
	}
	for part := range strings.SplitSeq(to, "/") {
		if strings.EqualFold(part, ".git") {
			return false
		}
	}
	return true
}

// AddMissing adds an item to the missing parts, as far as there is room.
func (m *Manifest) AddMissing(items ...string) {
	for _, item := range items {
		switch {
		case len(m.Missing) < maxMissing:
			m.Missing = append(m.Missing, item)
		case len(m.Missing) == maxMissing:
			m.Missing = append(m.Missing, "more, which are not listed")
		}
	}
}
