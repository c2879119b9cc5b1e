package acp

import (
	"github.com/overwinter-dev/overwinter/internal/agent/acp/acpformat"
	"github.com/overwinter-dev/overwinter/internal/conversation"
	"github.com/overwinter-dev/overwinter/internal/transcript"
)

// Parse reads the notebooks that the bridge has written. Other files belong to the agent and have
// an unknown format. It never fails.
func (Adapter) Parse(files []transcript.File) (conversation.Conversation, error) {
	return acpformat.Recorded(files), nil
}
