package activities_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/permission"
	"github.com/overwinter-dev/overwinter/internal/profile"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// profile gives the session a version of its profile.
func (b *harness) profile(t *testing.T, p profile.Profile) profile.Profile {
	t.Helper()
	var err error
	if p.ID == "" {
		p.ID = session.NewID(session.ProfilePrefix)
		p, err = b.db.ProfileCreate(b.ctx, p)
	} else {
		p, err = b.db.ProfileUpdate(b.ctx, p, 0)
	}
	require.NoError(t, err)
	ref := p.Ref()
	_, err = b.db.SessionPatch(b.ctx, b.id, session.Patch{Profile: &ref})
	require.NoError(t, err)
	return p
}

// printed returns the output of a turn's tools.
func (b *harness) printed(t *testing.T, runID string) string {
	t.Helper()
	var out strings.Builder
	for _, e := range b.of(t, runID, "block_complete") {
		out.Write(e.Data)
	}
	return out.String()
}

func TestProfileIsWrittenBeforeAgentStarts(t *testing.T) {
	t.Parallel()
	b := setup(t)
	p := b.profile(t, profile.Profile{Name: "p", Spec: profile.Spec{
		Files:       []profile.File{{Path: "docs/note.md", Content: "from version one"}},
		Environment: map[string]string{"LEVEL": "one"},
	}})
	ready := b.create(t)
	first := b.claim(t, ready, "$ cat docs/note.md; echo level $LEVEL; echo edited > docs/note.md")
	_, err := b.turn(first)
	require.NoError(t, err)
	require.Contains(t, b.printed(t, first.RunID), "from version one")
	require.Contains(t, b.printed(t, first.RunID), "level one")

	// Another worker, which does not know this sandbox, writes nothing again.
	b.build()
	second := b.claim(t, ready, "$ cat docs/note.md")
	_, err = b.turn(second)
	require.NoError(t, err)
	require.Contains(t, b.printed(t, second.RunID), "edited", "changed files are not overwritten")

	// Another version starts the agent with its variables; a file whose content in the profile is
	// unchanged stays edited.
	p.Spec.Environment["LEVEL"] = "two"
	p = b.profile(t, p)
	kept := b.claim(t, ready, "$ cat docs/note.md; echo level $LEVEL")
	_, err = b.turn(kept)
	require.NoError(t, err)
	require.Contains(t, b.printed(t, kept.RunID), "edited")
	require.Contains(t, b.printed(t, kept.RunID), "level two")

	// A file whose content in the profile has changed is written.
	p.Spec.Files[0].Content = "from version three"
	b.profile(t, p)
	third := b.claim(t, ready, "$ cat docs/note.md; echo level $LEVEL")
	_, err = b.turn(third)
	require.NoError(t, err)
	require.Contains(t, b.printed(t, third.RunID), "from version three")
	require.Contains(t, b.printed(t, third.RunID), "level two")
}

func TestProfileDeniesTool(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.profile(t, profile.Profile{Name: "p", Spec: profile.Spec{
		Permissions: permission.Rules{Tools: map[string]permission.Policy{"write": permission.Deny}},
	}})
	in := b.claim(t, b.create(t), "write a.txt: x\n$ ls")
	result, err := b.turn(in)
	require.NoError(t, err)
	require.Equal(t, session.OutcomeCompleted, result.Outcome)
	require.Contains(t, b.printed(t, in.RunID), "do not allow this")
	require.NotContains(t, b.printed(t, in.RunID), "a.txt\\n")
	items, _, err := b.db.QuestionList(b.ctx, b.id, "", 0, "")
	require.NoError(t, err)
	require.Empty(t, items, "no question was asked")
}
