package client

import (
	"context"
	"iter"

	"github.com/overwinter-dev/overwinter/internal/conversation"
)

// BlockChange is the current state of a changed block.
type BlockChange struct {
	ConversationID string
	Block          Block
	// Removed reports that the block is no longer part of the conversation.
	Removed bool
	// Seq is the position of the change in the session's log.
	Seq int64
}

// FollowBlocks yields the conversation of a session: first all existing blocks, in order, and then
// each block that is added, changed or removed, until the session has ended, the server returns an
// error, or ctx is done. A program that keeps the newest state of each block by its conversation
// and id has the same blocks as Blocks returns. After a gap in the events, FollowBlocks reads the
// blocks again and yields those that differ. An error is yielded last.
func (c *Client) FollowBlocks(ctx context.Context, sessionID string) iter.Seq2[BlockChange, error] {
	return func(yield func(BlockChange, error) bool) {
		f := blockFollower{client: c, sessionID: sessionID, yield: yield}
		if err := f.run(ctx); err != nil {
			yield(BlockChange{}, err)
		}
	}
}

// blockKey identifies a block.
type blockKey struct{ conversation, block string }

// blockFollower is the state of one call of FollowBlocks.
type blockFollower struct {
	client    *Client
	sessionID string
	yield     func(BlockChange, error) bool
	folder    *conversation.Folder
	known     map[blockKey]bool
}

func (f *blockFollower) run(ctx context.Context) error {
	for {
		after, stopped, err := f.read(ctx)
		if err != nil || stopped {
			return err
		}
		gap, err := f.follow(ctx, after)
		if err != nil || !gap {
			return err
		}
	}
}

// read yields the existing blocks, and as removed those that no longer exist.
func (f *blockFollower) read(ctx context.Context) (after int64, stopped bool, err error) {
	now, err := f.client.Blocks(ctx, f.sessionID)
	if err != nil {
		return 0, false, err
	}
	before := f.known
	f.folder, f.known = &conversation.Folder{}, map[blockKey]bool{}
	for _, thread := range now.Threads {
		for _, b := range thread.Blocks {
			key := blockKey{thread.ID, b.ID}
			f.known[key] = true
			delete(before, key)
			f.folder.Add(conversation.Event{ConversationID: thread.ID, Data: conversation.BlockStart{Block: b.internal()}})
			if !f.yield(BlockChange{ConversationID: thread.ID, Block: b, Seq: now.Seq}, nil) {
				return 0, true, nil
			}
		}
	}
	for key := range before {
		if !f.yield(BlockChange{ConversationID: key.conversation, Block: Block{ID: key.block}, Removed: true, Seq: now.Seq}, nil) {
			return 0, true, nil
		}
	}
	return now.Seq, false, nil
}

// follow yields changes until the stream has ended, or has a gap.
func (f *blockFollower) follow(ctx context.Context, after int64) (gap bool, err error) {
	for e, err := range f.client.Follow(ctx, f.sessionID, after) {
		if err != nil {
			return false, err
		}
		if e.Type == MarkerGap {
			return true, nil
		}
		change, changed, err := f.apply(e)
		if err != nil {
			return false, err
		}
		if changed && !f.yield(change, nil) {
			return false, nil
		}
	}
	return false, nil
}

// apply folds an event into the blocks. Events about unknown blocks have no effect.
func (f *blockFollower) apply(e Event) (change BlockChange, changed bool, err error) {
	var of struct {
		Block   struct{ ID string }
		BlockID string
	}
	switch e.Type {
	case EventBlockStart, EventBlockComplete, EventTextDelta, EventBlockUpdate, EventBlockRemoved:
		if err := e.Decode(&of); err != nil {
			return change, false, err
		}
	default:
		return change, false, nil
	}
	key := blockKey{e.ConversationID, of.Block.ID}
	if key.conversation == "" {
		key.conversation = MainConversation
	}
	if key.block == "" {
		key.block = of.BlockID
	}
	if err := f.folder.Apply(conversation.EventType(e.Type), key.conversation, e.Data); err != nil {
		return change, false, err
	}
	change = BlockChange{ConversationID: key.conversation, Block: Block{ID: key.block}, Seq: e.Seq}
	b, found := f.folder.Block(key.conversation, key.block)
	switch {
	case found:
		change.Block = blockOf(b)
		f.known[key] = true
	case f.known[key]:
		change.Removed = true
		delete(f.known, key)
	default:
		return change, false, nil
	}
	return change, true, nil
}

// blockOf converts a folded block.
func blockOf(b conversation.Block) Block {
	out := Block{
		ID: b.ID, Type: BlockType(b.Type), Status: BlockStatus(b.Status), CreatedAt: Time{b.CreatedAt}, RunID: b.RunID,
		Content: b.Content, PromptID: b.PromptID, Author: b.Author,
		Name: b.Name, Input: b.Input, ToolUseID: b.ToolUseID, Output: b.Output, IsError: b.IsError,
		Tool:    Tool{Kind: string(b.Kind), Title: b.Title},
		Subtype: b.Subtype, Message: b.Message, SubagentID: b.SubagentID, TruncatedBytes: b.TruncatedBytes,
	}
	if b.CompletedAt != nil {
		out.CompletedAt = &Time{*b.CompletedAt}
	}
	for _, l := range b.Locations {
		out.Locations = append(out.Locations, Location(l))
	}
	for _, d := range b.Diff {
		out.Diff = append(out.Diff, Edit(d))
	}
	for _, i := range b.Images {
		out.Images = append(out.Images, Image(i))
	}
	return out
}

// internal converts a block to the type of the fold.
func (b Block) internal() conversation.Block {
	out := conversation.Block{
		ID: b.ID, Type: conversation.BlockType(b.Type), Status: conversation.BlockStatus(b.Status), CreatedAt: b.CreatedAt.Time, RunID: b.RunID,
		Content: b.Content, PromptID: b.PromptID, Author: b.Author,
		Name: b.Name, Input: b.Input, ToolUseID: b.ToolUseID, Output: b.Output, IsError: b.IsError,
		Tool:    conversation.Tool{Kind: conversation.ToolKind(b.Kind), Title: b.Title},
		Subtype: b.Subtype, Message: b.Message, SubagentID: b.SubagentID, TruncatedBytes: b.TruncatedBytes,
	}
	if b.CompletedAt != nil {
		out.CompletedAt = &b.CompletedAt.Time
	}
	for _, l := range b.Locations {
		out.Locations = append(out.Locations, conversation.Location(l))
	}
	for _, d := range b.Diff {
		out.Diff = append(out.Diff, conversation.FileDiff(d))
	}
	for _, i := range b.Images {
		out.Images = append(out.Images, conversation.Image(i))
	}
	return out
}
