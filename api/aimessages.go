package api

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/overwinter-dev/overwinter/internal/aisdk"
	"github.com/overwinter-dev/overwinter/internal/conversation"
	"github.com/overwinter-dev/overwinter/internal/question"
	"github.com/overwinter-dev/overwinter/internal/resource"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// messages sends a conversation as messages of the AI SDK. It holds one page of blocks and the
// blocks of one turn in memory.
func (s *aiTurns) messages(c echo.Context) error {
	id, err := sessionID(c)
	if err != nil {
		return err
	}
	ctx := c.Request().Context()
	page, next, err := s.page(ctx, id, "")
	if err != nil {
		return err
	}
	out := &transcriptWriter{
		server: s.Server, response: c.Response(), control: http.NewResponseController(c.Response()), contentType: echo.MIMEApplicationJSON,
	}
	out.buffer = bufio.NewWriterSize(out, 64<<10)
	if err := out.control.SetReadDeadline(time.Time{}); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return fmt.Errorf("lift read deadline: %w", err)
	}
	list := &messageList{server: s, sessionID: id, out: out.buffer, seen: map[string]bool{}, aside: map[string][]aisdk.Located{}}
	fmt.Fprintf(out.buffer, `{"seq":%d,"messages":[`, page.Seq)
	for {
		err = list.add(ctx, page)
		if err != nil || next == "" {
			break
		}
		if page, next, err = s.page(ctx, id, next); err != nil {
			break
		}
	}
	if err == nil {
		err = list.end(ctx)
	}
	if err == nil {
		_, err = out.buffer.WriteString("]}\n")
	}
	if err == nil {
		err = out.end()
	}
	if err != nil && c.Response().Committed {
		panic(http.ErrAbortHandler)
	}
	return err
}

func (s *aiTurns) page(ctx context.Context, id, cursor string) (conversation.Conversation, string, error) {
	return s.conversationPage(ctx, s, id, cursor)
}

// conversationPage reads a page within the time of a request.
func (s *Server) conversationPage(ctx context.Context, store conversationStore, id, cursor string) (conversation.Conversation, string, error) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.RequestTimeout)
	defer cancel()
	return store.ConversationPage(ctx, id, maxBlockLimit, cursor)
}

// messageList writes the messages of a conversation, in order.
type messageList struct {
	server    *aiTurns
	sessionID string
	out       *bufio.Writer
	written   bool

	// The current turn: its prompt, its newest run and its blocks.
	promptID, runID, question string
	blocks                    []aisdk.Located
	aside                     map[string][]aisdk.Located // blocks of subagents, by run

	seen map[string]bool // prompts whose messages have been written
}

// add processes the next page. A turn starts with the user's message of a run.
func (l *messageList) add(ctx context.Context, page conversation.Conversation) error {
	for _, t := range page.Threads {
		if t.ID == conversation.Main {
			continue
		}
		for _, b := range t.Blocks {
			l.aside[b.RunID] = append(l.aside[b.RunID], aisdk.Located{ConversationID: t.ID, Block: b})
		}
	}
	for _, t := range page.Threads {
		if t.ID != conversation.Main {
			continue
		}
		for _, b := range t.Blocks {
			if b.Type == conversation.UserMessage && b.PromptID != "" && (b.RunID == "" || b.RunID != l.runID) {
				l.leaveRun()
				if b.PromptID != l.promptID {
					if err := l.turn(ctx); err != nil {
						return err
					}
					l.promptID, l.question = b.PromptID, b.Content
				}
				l.runID = b.RunID
			}
			l.blocks = append(l.blocks, aisdk.Located{ConversationID: conversation.Main, Block: b})
		}
	}
	return nil
}

// leaveRun adds the output of a run's subagents.
func (l *messageList) leaveRun() {
	l.blocks = append(l.blocks, l.aside[l.runID]...)
	delete(l.aside, l.runID)
	l.runID = ""
}

// turn writes the messages of the turn that has been read.
func (l *messageList) turn(ctx context.Context) error {
	blocks := l.blocks
	l.blocks = nil
	if l.promptID == "" {
		if len(blocks) == 0 {
			return nil
		}
		// These blocks are from a release that recorded no prompts, or precede the first prompt.
		return l.write(aisdk.Reply(l.sessionID, resource.PromptJSON{ID: blocks[0].Block.ID, Status: session.PromptCompleted}, blocks, nil))
	}
	prompt, err := l.server.turns.PromptGet(ctx, l.sessionID, l.promptID)
	if err != nil {
		return err
	}
	l.seen[l.promptID] = true
	if err := l.write(aisdk.UserMessage(l.promptID, l.question)); err != nil {
		return err
	}
	questions, err := l.questions(ctx, blocks)
	if err != nil {
		return err
	}
	return l.write(aisdk.Reply(l.sessionID, resource.Prompt(prompt), blocks, questions))
}

// questions returns the questions that the agent has asked people in the runs of blocks, oldest
// first.
func (l *messageList) questions(ctx context.Context, blocks []aisdk.Located) ([]question.Question, error) {
	var runs []string
	for _, b := range blocks {
		if b.Block.RunID != "" && !slices.Contains(runs, b.Block.RunID) {
			runs = append(runs, b.Block.RunID)
		}
	}
	if len(runs) == 0 {
		return nil, nil
	}
	questions, err := l.server.turns.QuestionsOfRuns(ctx, l.sessionID, runs)
	if err != nil || len(questions) == 0 {
		return nil, err
	}
	masker, err := l.server.cfg.Masks.Masker(ctx)
	if err != nil {
		return nil, err
	}
	for i := range questions {
		questions[i].Asked = questions[i].Asked.Map(masker.Text, masker.JSON)
	}
	return questions, nil
}

func (l *messageList) write(m aisdk.Message) error {
	data, err := conversation.Encode(m)
	if err != nil {
		return err
	}
	if l.written {
		data = append([]byte(","), data...)
	}
	l.written = true
	_, err = l.out.Write(data)
	return err
}

// end writes the last turn, and the prompts that have not reached the agent yet.
func (l *messageList) end(ctx context.Context) error {
	l.leaveRun()
	if err := l.turn(ctx); err != nil {
		return err
	}
	waiting, err := l.server.turns.PromptsPending(ctx, l.sessionID, session.MaxQueued+1)
	if err != nil {
		return err
	}
	for _, id := range waiting {
		if l.seen[id] {
			continue
		}
		prompt, err := l.server.turns.PromptGet(ctx, l.sessionID, id)
		if err != nil {
			return err
		}
		if err := l.write(aisdk.UserMessage(prompt.ID, prompt.Content)); err != nil {
			return err
		}
	}
	return nil
}
