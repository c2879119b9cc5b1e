package api

import (
	"context"
	"errors"
	"net/http"

	"github.com/labstack/echo/v4"

	"github.com/overwinter-dev/overwinter/internal/conversation"
	"github.com/overwinter-dev/overwinter/internal/failure"
)

// conversationStore reads the conversations of sessions.
type conversationStore interface {
	// ConversationPage returns blocks in the order in which they appeared, bounded by limit and a
	// number of bytes, and the cursor of the next page. Seq is the log position of the first page.
	ConversationPage(ctx context.Context, sessionID string, limit int, cursor string) (page conversation.Conversation, nextCursor string, err error)
	// ConversationTail returns the cursor of a page with the newest blocks, bounded by limit and
	// approximately by the given bytes, and the number of earlier blocks. The cursor is empty if
	// there are no blocks.
	ConversationTail(ctx context.Context, sessionID string, bytes int64, limit int) (cursor string, leftOut int64, err error)
}

// conversations are the routes of conversations.
type conversations struct {
	*Server
	store conversationStore
}

// maxBlockLimit is the maximum and the default number of blocks in a page.
const maxBlockLimit = 1000

// blockPage is a page of a conversation.
type blockPage struct {
	conversation.Conversation
	NextCursor string `json:"nextCursor,omitempty"`
}

func (s *conversations) blocks(c echo.Context) error {
	id, err := sessionID(c)
	if err != nil {
		return err
	}
	limit, cursor, err := pageQuery(c, maxBlockLimit, maxBlockLimit)
	if err != nil {
		return err
	}
	conv, next, err := s.store.ConversationPage(c.Request().Context(), id, limit, cursor)
	if err != nil {
		return err
	}
	return c.JSON(http.StatusOK, newBlockPage(conv, next))
}

// newBlockPage returns a page without null lists in JSON.
func newBlockPage(conv conversation.Conversation, next string) blockPage {
	if len(conv.Threads) == 0 {
		conv.Threads = []conversation.Thread{{ID: conversation.Main}}
	}
	for i := range conv.Threads {
		if conv.Threads[i].Blocks == nil {
			conv.Threads[i].Blocks = []conversation.Block{}
		}
	}
	return blockPage{Conversation: conv, NextCursor: next}
}

// state queries the workflow. It is the only read that needs a worker.
func (s *Server) state(c echo.Context) error {
	id, err := sessionID(c)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(c.Request().Context(), s.cfg.StateTimeout)
	defer cancel()
	view, err := s.cfg.Signaler.State(ctx, id)
	if err != nil {
		if errors.Is(err, context.DeadlineExceeded) {
			return &failure.Error{Code: failure.Unavailable, Message: "no worker answered in time; try again", Err: err}
		}
		return err
	}
	return c.JSONBlob(http.StatusOK, view)
}
