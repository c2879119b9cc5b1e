package main

import (
	"os"
	"path"
	"slices"
	"strings"

	"github.com/bmatcuk/doublestar/v4"

	"github.com/overwinter-dev/overwinter/internal/portable"
	"github.com/overwinter-dev/overwinter/internal/portable/worktree"
)

// leaveSettings removes from an archive the files that would give an agent's program on this
// machine more permissions than the user has granted, and records them as missing. The agent in the
// sandbox may have written them. Files that are in the repository's head commit keep their
// committed content.
func leaveSettings(staged *worktree.Staged, agents []localAgent) {
	leave := func(name string, link bool) bool {
		if !configures(name, link, agents) {
			return false
		}
		staged.AddMissing(name + " (settings of an agent)")
		return true
	}
	staged.Entries = slices.DeleteFunc(staged.Entries, func(e portable.Entry) bool {
		name, ok := e.WorkspacePath()
		return ok && leave(name, e.Link != "")
	})
	staged.Deleted = slices.DeleteFunc(staged.Deleted, func(name string) bool { return leave(name, false) })
}

// configures reports whether a path of a workspace is one of an agent's settings, or a link that may lead to them. File systems may
// ignore case.
func configures(name string, link bool, agents []localAgent) bool {
	name = strings.ToLower(name)
	for _, a := range agents {
		for _, pattern := range a.local.Settings() {
			if ok, _ := doublestar.Match(pattern, name); ok { // the patterns are valid
				return true
			}
			for above := path.Dir(pattern); link && above != "."; above = path.Dir(above) {
				if ok, _ := doublestar.Match(above, name); ok {
					return true
				}
			}
		}
	}
	return false
}

// settingsIn returns the paths of the agents' settings in a directory.
func settingsIn(dir string, agents []localAgent) []string {
	var found []string
	for _, a := range agents {
		for _, pattern := range a.local.Settings() {
			names, err := doublestar.Glob(os.DirFS(dir), pattern, doublestar.WithFilesOnly())
			if err == nil { // the patterns are valid, and unreadable files configure nothing
				found = append(found, names...)
			}
		}
	}
	return found
}
