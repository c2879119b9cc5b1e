package opencode

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/overwinter-dev/overwinter/internal/agent/bridge"
)

// commandRevert has the bridge take the conversation back, to before the message that has the part ID.
const commandRevert bridge.CommandType = "revert"

// noteReverted says that it has; its data is a revertedNote.
const noteReverted bridge.NoteType = "reverted"

type revertedNote struct {
	Removed []string `json:"removed"` // ids of the blocks that are no more
}

// Revert is what is written to the agent's stdin, between two turns, to take the conversation back to
// before a user_message, with what was done to files since then where the workspace is a repository.
// The bridge answers with the note "reverted", or "failed" with the reason, under the request's id.
// The saved session then lacks what was taken back.
func (Adapter) Revert(requestID, blockID string) ([]byte, error) {
	if requestID == "" || blockID == "" {
		return nil, errors.New("revert OpenCode: a request id and a block are needed")
	}
	return bridge.Command{Type: commandRevert, RunID: requestID, ID: blockID}.Encode()
}

// revert takes the conversation back.
func (b *driver) revert(ctx context.Context, c bridge.Command) {
	if err := b.tryRevert(ctx, c); err != nil {
		b.out.Note(bridge.Note{Type: bridge.NoteFailed, RunID: c.RunID, ID: c.ID, Message: err.Error()})
	}
}

func (b *driver) tryRevert(ctx context.Context, c bridge.Command) error {
	if b.turn != nil {
		return errors.New("a turn is under way")
	}
	messages, err := b.server.messages(ctx, b.root)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(messages, func(m exported) bool {
		return m.Info.fromUser() && slices.ContainsFunc(m.Parts, func(p part) bool { return p.ID == c.ID })
	})
	if i < 0 {
		return fmt.Errorf("there is no message %s", c.ID)
	}
	if _, err := b.server.quick(ctx, http.MethodPost, route(b.root, "/revert"), revert{MessageID: messages[i].Info.ID}); err != nil {
		return err
	}
	removed, err := b.reverted(ctx, messages)
	if err != nil {
		return err
	}
	data, err := json.Marshal(revertedNote{Removed: removed})
	if err != nil {
		return err
	}
	b.store.touch(b.root)
	b.save(ctx)
	b.out.Note(bridge.Note{Type: noteReverted, RunID: c.RunID, ID: c.ID, Data: data})
	return nil
}

// reverted are the ids of the blocks that were taken back and are still with the session.
func (b *driver) reverted(ctx context.Context, messages []exported) ([]string, error) {
	data, err := b.server.quick(ctx, http.MethodGet, route(b.root, ""), nil)
	if err != nil {
		return nil, err
	}
	var info sessionInfo
	if err := json.Unmarshal(data, &info); err != nil {
		return nil, fmt.Errorf("session %s: %w", b.root, err)
	}
	if info.Revert == nil {
		return nil, nil
	}
	left := map[string]bool{}
	for _, block := range (&transcript{info: info, messages: slices.Clone(messages)}).blocks(nil) {
		left[block.ID] = true
	}
	info.Revert = nil
	var removed []string
	for _, block := range (&transcript{info: info, messages: messages}).blocks(nil) {
		if !left[block.ID] {
			removed = append(removed, block.ID)
		}
	}
	return removed, nil
}
