package terminal

import (
	"fmt"
	"strings"
	"time"

	"github.com/overwinter-dev/overwinter/internal/event"
	"github.com/overwinter-dev/overwinter/internal/resource"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// unseen lists the commands whose effect no other event shows.
var unseen = map[session.CommandKind]bool{session.CommandSync: true, session.CommandRevert: true, session.CommandAbort: true}

// command shows that a command was accepted, and how it ended unless the state of the session shows that.
func (v *View) command(c resource.CommandJSON) {
	name := OneLine(strings.TrimPrefix(string(c.Kind), "environment/"), lineRunes)
	switch c.Status {
	case session.CommandPending:
		how := ""
		if c.Force {
			how = ", now"
		}
		v.line(nil, span{dim, name + " requested" + how + inBrackets(v.shorten(c.Reason))})
	case session.CommandApplied:
		if unseen[c.Kind] {
			v.line(nil, span{dim, name + " done"})
		}
	default:
		v.line(nil, span{yellow, fmt.Sprintf("%s %s%s", name, OneLine(string(c.Status), lineRunes), inBrackets(v.shorten(c.Reason)))})
	}
}

// settings shows the new values of the changed settings.
func (v *View) settings(d event.SettingsData) {
	var parts []string
	if d.Options != nil {
		parts = append(parts, "model "+orDefault(d.Options.Model), "permissions "+orDefault(string(d.Options.Permissions)))
		if d.Options.QuestionTimeout != 0 {
			parts = append(parts, "question timeout "+time.Duration(d.Options.QuestionTimeout).String())
		}
		if d.Options.Checkpoint != "" {
			parts = append(parts, "checkpoint "+string(d.Options.Checkpoint))
		}
	}
	if d.IdleTimeout != nil {
		parts = append(parts, "idle timeout "+time.Duration(*d.IdleTimeout).String())
	}
	if d.Profile != nil {
		parts = append(parts, "profile "+orDefault(*d.Profile))
	}
	if d.Workspace != nil {
		parts = append(parts, "workspace "+orDefault(strings.TrimSpace(d.Workspace.RepoURL+" "+d.Workspace.Ref)))
	}
	if len(d.Metadata) > 0 {
		parts = append(parts, "metadata "+unescaped(d.Metadata))
	}
	v.line(nil, span{dim, "settings: " + v.shorten(strings.Join(parts, ", "))})
}

func orDefault(text string) string {
	if text == "" {
		return "default"
	}
	return text
}
