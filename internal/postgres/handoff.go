package postgres

import (
	"context"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/overwinter-dev/overwinter/internal/fork"
	"github.com/overwinter-dev/overwinter/internal/postgres/dbsqlc"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// maxHandOffItems bounds the messages and calls in a hand-off.
const maxHandOffItems = 500

// HandOff returns the agent that worked in a session before it was forked with another agent, empty
// if there is none, and whether the current agent has no memory of it yet.
func (db *DB) HandOff(ctx context.Context, sessionID string) (from string, due bool, err error) {
	row, err := handOff(ctx, db.q, db.pool, sessionID)
	return row.HandedFrom, row.Due, fault("read a hand-off", err)
}

func handOff(ctx context.Context, q *dbsqlc.Queries, tx dbsqlc.DBTX, sessionID string) (dbsqlc.HandOffRow, error) {
	row, err := q.HandOff(ctx, tx, &dbsqlc.HandOffParams{SessionID: sessionID, Reverted: session.ReasonReverted})
	if isNoRows(err) {
		return dbsqlc.HandOffRow{}, nil
	}
	return row, err
}

// handOff reads the part of the conversation before an event that the agent is given: the newest
// messages that fit. It returns nil if the agent already has them in its memory.
func (s *sessionTx) handOff(ctx context.Context, before int64) (*fork.HandOff, error) {
	handed, err := handOff(ctx, s.q, s, s.row.ID)
	if err != nil || !handed.Due {
		return nil, err
	}
	rows, err := s.q.HandOffBlocks(ctx, s, &dbsqlc.HandOffBlocksParams{
		SessionID: s.row.ID, BeforeSeq: before, MaxChars: fork.MaxHandOffText + 1, MaxItems: maxHandOffItems + 1,
	})
	if err != nil {
		return nil, err
	}
	h := fork.HandOff{From: handed.HandedFrom}
	size := 0
	for _, row := range rows {
		item := fork.Item{Kind: fork.ItemOfUser, Author: row.Author, Text: handOffText(row.Text, fork.MaxHandOffText)}
		switch row.Type {
		case "assistant_text":
			item.Kind = fork.ItemOfAgent
		case "tool_use":
			item = fork.Item{Kind: fork.ItemOfTool, Tool: handOffText(row.Name, fork.MaxHandOffCall), Text: handOffText(row.Text, fork.MaxHandOffCall)}
		}
		size += len(item.Text) + len(item.Tool) + len(item.Author) + handOffOverhead
		if h.More = len(h.Items) == maxHandOffItems || size > fork.MaxHandOff; h.More {
			break
		}
		if strings.TrimSpace(item.Text+item.Tool) != "" {
			h.Items = append(h.Items, item)
		}
	}
	slices.Reverse(h.Items)
	return &h, nil
}

// handOffOverhead is the size of a message in a note, apart from its text.
const handOffOverhead = 16

// handOffText truncates a text.
func handOffText(text string, most int) string {
	if len(text) <= most {
		return text
	}
	most -= len("…")
	for most > 0 && !utf8.RuneStart(text[most]) {
		most--
	}
	return text[:most] + "…"
}
