package postgres_test

import (
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/conversation"
	"github.com/overwinter-dev/overwinter/internal/eventlog"
	"github.com/overwinter-dev/overwinter/internal/failure"
	"github.com/overwinter-dev/overwinter/internal/run"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// lastFrames returns the last frames of the run of a speaker, whose block is open.
func (s *speaker) lastFrames(events ...eventlog.Draft) *eventlog.Append {
	return &eventlog.Append{SessionID: s.id, RunID: s.run, Generation: 1, Token: "t1", LastFrame: 7, Events: events}
}

func closed(frame int64, block string) eventlog.Draft {
	return draft("block_complete", frame, 0,
		fmt.Sprintf(`{"block":{"id":%q,"type":"assistant_text","status":"complete","content":"all","createdAt":"2026-01-01T00:00:00Z"}}`, block))
}

// TestLastFramesAreStoredWithOutcome checks that the last frames of a run are in the log before its
// end, once, and that the blocks they leave open are settled.
func TestLastFramesAreStoredWithOutcome(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for name, c := range map[string]struct {
		events []eventlog.Draft
		types  []string
		status conversation.BlockStatus
		title  string
	}{
		"the block is closed": {
			events: []eventlog.Draft{closed(5, "a"), draft("metadata_update", 6, 0, `{}`)},
			types:  []string{"block_complete", "metadata_update", "turn_end", "prompt", "queue"}, status: conversation.Complete, title: "hello",
		},
		"the agent gives a title": {
			events: []eventlog.Draft{closed(5, "a"), draft("title", 6, 0, `{"title":"of the agent"}`)},
			types:  []string{"block_complete", "title", "turn_end", "prompt", "queue"}, status: conversation.Complete, title: "of the agent",
		},
		"the block stays open": {
			events: []eventlog.Draft{draft("metadata_update", 6, 0, `{}`)},
			types:  []string{"metadata_update", "turn_end", "prompt", "queue"}, status: conversation.Streaming, title: "hello",
		},
		"another block opens": {
			events: []eventlog.Draft{closed(5, "a"), draft("block_start", 6, 0, `{"block":{"id":"z","type":"assistant_text","status":"streaming"}}`)},
			types:  []string{"block_complete", "block_start", "turn_end", "prompt", "queue"}, status: conversation.Streaming, title: "hello",
		},
		"there are no events": {
			types: []string{"turn_end", "prompt", "queue"}, status: conversation.Streaming, title: "hello",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := speakers(t, b, 1)[0]
			ending := run.Ending{RunID: s.run, Token: "t1", Outcome: session.OutcomeCompleted, Last: s.lastFrames(c.events...)}
			for range 2 { // the response of the first call is lost
				ended, err := s.RunEnd(s.ctx, ending)
				require.NoError(t, err)
				require.Equal(t, session.OutcomeCompleted, ended.Outcome)
				require.EqualValues(t, 7, ended.LastFrame)
			}
			require.Equal(t, c.types, s.types(t, s.before))
			require.Equal(t, s.position(t), s.before+int64(len(c.types)))
			stored, err := s.Conversation(s.ctx, s.id)
			require.NoError(t, err)
			blocks := stored.Threads[0].Blocks
			require.Equal(t, c.status, blocks[len(blocks)-1].Status)
			got, err := s.SessionGet(s.ctx, s.id)
			require.NoError(t, err)
			require.Equal(t, c.title, got.Title)
			var live int
			conn, err := pgx.Connect(s.ctx, s.url)
			require.NoError(t, err)
			defer conn.Close(s.ctx)
			require.NoError(t, conn.QueryRow(s.ctx, "SELECT count(*) FROM blocks WHERE session_id = $1 AND live", s.id).Scan(&live))
			require.Zero(t, live, "a block of a run that has ended takes no text")
		})
	}
}

// TestRefusedEndWritesNoFrames checks that nothing of an ending is stored if a part of it is refused.
func TestRefusedEndWritesNoFrames(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for name, c := range map[string]struct {
		change func(*run.Ending)
		code   failure.Code
	}{
		"of an earlier attempt": {func(e *run.Ending) { e.Token, e.Last.Token = "old", "old" }, failure.IllegalState},
		"of another attempt":    {func(e *run.Ending) { e.Last.Token = "old" }, failure.Invalid},
		"of another run":        {func(e *run.Ending) { e.Last.RunID = "run_x" }, failure.Invalid},
		"without a token":       {func(e *run.Ending) { e.Token, e.Last.Token = "", "" }, failure.Invalid},
		"not JSON":              {func(e *run.Ending) { e.Last.Events[0].Data = []byte("{") }, failure.Invalid},
		"with text": {func(e *run.Ending) {
			e.Last.Events = append(e.Last.Events, draft("text_delta", 6, 0, `{"blockId":"a","delta":"more"}`))
		}, failure.Invalid},
		"with a question":           {func(e *run.Ending) { e.Last.Questions = make([]eventlog.Question, 1) }, failure.Invalid},
		"an event after the frames": {func(e *run.Ending) { e.Last.Events[0].Frame = 8 }, failure.Invalid},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := speakers(t, b, 1)[0]
			ending := run.Ending{RunID: s.run, Token: "t1", Outcome: session.OutcomeCompleted, Last: s.lastFrames(closed(5, "a"))}
			c.change(&ending)
			_, err := s.RunEnd(s.ctx, ending)
			requireCode(t, c.code, err)
			require.Empty(t, s.types(t, s.before))
			open, err := s.RunGet(s.ctx, s.run)
			require.NoError(t, err)
			require.Zero(t, open.EndedAt)
			require.EqualValues(t, 0, open.LastFrame)
		})
	}
}
