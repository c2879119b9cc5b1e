package cli

import (
	"encoding/json"
	"fmt"

	"github.com/overwinter-dev/overwinter/client"
	"github.com/overwinter-dev/overwinter/internal/conversation"
	"github.com/overwinter-dev/overwinter/internal/event"
	"github.com/overwinter-dev/overwinter/internal/resource"
	"github.com/overwinter-dev/overwinter/internal/terminal"
)

// show converts an event to the type of package terminal and shows it.
func show(view *terminal.View, e client.Event) error {
	return view.Event(event.JSON{
		Seq: e.Seq, Type: e.Type, SessionID: e.SessionID, ConversationID: e.ConversationID, RunID: e.RunID, At: resource.Time(e.At.Time), Data: e.Data,
	})
}

// resume shows the last blocks of a conversation.
func resume(view *terminal.View, blocks client.Conversation, last int) error {
	data, err := json.Marshal(blocks)
	if err != nil {
		return fmt.Errorf("encode blocks: %w", err)
	}
	var c conversation.Conversation
	if err := json.Unmarshal(data, &c); err != nil {
		return fmt.Errorf("read blocks: %w", err)
	}
	return view.Resume(c, last)
}
