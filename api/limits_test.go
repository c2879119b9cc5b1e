package api

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/agui"
	"github.com/overwinter-dev/overwinter/internal/conversation"
	"github.com/overwinter-dev/overwinter/internal/profile"
	"github.com/overwinter-dev/overwinter/internal/question"
	"github.com/overwinter-dev/overwinter/internal/secret"
	"github.com/overwinter-dev/overwinter/internal/session"
	"github.com/overwinter-dev/overwinter/internal/transcript"
	"github.com/overwinter-dev/overwinter/internal/workspacefile"
)

// TestDocumentHasLimitsOfCode compares docs/limits.md with the constants.
func TestDocumentHasLimitsOfCode(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile(filepath.Join("..", "docs", "limits.md"))
	require.NoError(t, err)
	rows := map[string]string{}
	for line := range strings.Lines(string(raw)) {
		if cells := strings.Split(line, "|"); len(cells) > 3 {
			rows[strings.TrimSpace(cells[1])] = strings.TrimSpace(cells[2])
		}
	}
	bytes := func(n int) string {
		switch {
		case n%(1<<20) == 0:
			return fmt.Sprintf("%d MiB", n>>20)
		case n%(1<<10) == 0 && n > 2048:
			return fmt.Sprintf("%d KiB", n>>10)
		}
		return fmt.Sprintf("%d bytes", n)
	}
	characters := func(n int) string { return fmt.Sprintf("%d characters", n) }
	for row, want := range map[string]string{
		"messages of consecutive events that a WebSocket writes at once": bytes(corkBytes) + ", and the rest of the message that exceeds it",
		"body of a request":                                                bytes(maxBodyBytes),
		"nesting of JSON in a request":                                     fmt.Sprintf("%d levels", maxDepth),
		"answers in one request of `…/ag-ui`":                              fmt.Sprint(maxResumed),
		"messages of a request of `…/ag-ui` that are looked up as prompts": fmt.Sprint(maxLookedUp),
		"snapshot of a stream of `…/ag-ui`": fmt.Sprintf("%s and %d messages, the newest, and the message of its prompt; %d are built at once, and one per second and stream",
			bytes(agui.MaxSnapshotBytes), agui.MaxSnapshotMessages, maxBuilding),
		"content of a prompt":                                          bytes(session.MaxPromptBytes),
		"queued prompts of a session":                                  fmt.Sprint(session.MaxQueued),
		"title of a session":                                           characters(session.MaxTitleRunes),
		"name of a model":                                              characters(profile.MaxModelRunes),
		"metadata of a session":                                        bytes(session.MaxMetadataBytes),
		"setup script of a workspace":                                  bytes(session.MaxSetupBytes),
		"URL of a repository":                                          bytes(maxRepoURLBytes),
		"branch or commit of a repository":                             bytes(maxRefBytes),
		"answers to one question":                                      fmt.Sprint(question.MaxAnswers),
		"each answer in words, and the message of an answer":           characters(question.MaxAnswerRunes),
		"items of a profile, of each kind":                             fmt.Sprint(profile.MaxItems),
		"description of a profile":                                     characters(profile.MaxDescription),
		"text that a list is filtered by":                              bytes(maxFilterBytes),
		"secrets of an installation":                                   fmt.Sprint(secret.MaxStored),
		"hosts that a secret is bound to":                              fmt.Sprint(secret.MaxHosts),
		"replaced and deleted values of a secret that stay masked":     fmt.Sprint(secret.MaxReplacedValues),
		"value of a secret":                                            bytes(secret.MaxBytes),
		"items of a page":                                              fmt.Sprint(maxLimit),
		"blocks of a page of a conversation":                           fmt.Sprint(maxBlockLimit),
		"data of all events of a turn":                                 bytes(conversation.MaxTurnBytes),
		"events of a turn":                                             fmt.Sprint(conversation.MaxTurnEvents),
		"content, message, input or output of a block, each":           bytes(conversation.MaxBlockBytes),
		"id of a block or conversation":                                bytes(conversation.MaxIDBytes),
		"a question for people, with the tool input that it refers to": bytes(question.MaxBytes),
		"questions of a turn, including those that a policy decides":   bytes(question.MaxBytesPerTurn),
		"the agent's id of a question":                                 bytes(question.MaxIDBytes),
		"questions for people in a turn":                               fmt.Sprint(question.MaxPerTurn),
		"files that are listed":                                        fmt.Sprint(workspacefile.MaxWatched),
		"path of a file":                                               bytes(workspacefile.MaxPath),
		"content of a file":                                            bytes(workspacefile.MaxBytes),
		"content of all files of a session":                            bytes(workspacefile.MaxSavedBytes),
		"text of a diff":                                               bytes(workspacefile.MaxPatchBytes),
		"one transcript file":                                          bytes(transcript.MaxFileBytes),
		"all transcripts of a session":                                 fmt.Sprintf("%d GiB", transcript.MaxSessionBytes>>30),
		"transcript files of a session":                                fmt.Sprint(transcript.MaxFiles),
		"path of a transcript file":                                    bytes(transcript.MaxPath),
		"transcripts of a session that is reverted":                    bytes(transcript.MaxRevertBytes),
	} {
		require.Equal(t, want, rows[row], "docs/limits.md: %s", row)
	}
}
