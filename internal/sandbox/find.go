package sandbox

import (
	"context"

	"github.com/overwinter-dev/overwinter/internal/session"
)

// Find returns the running sandbox with the name of a session's generation. It fails with Gone if
// there is none, and with ErrNameForeign if it belongs to another installation.
func (p *Provider) Find(ctx context.Context, sessionID string, generation int64) (*Sandbox, error) {
	const op = "find"
	name := session.SandboxName(sessionID, generation)
	found, err := p.drv.Lookup(ctx, name)
	if err != nil {
		return nil, fault(ctx, op, name, err)
	}
	if found.Tags[TagInstallation] != p.installation {
		return nil, &Error{Code: NameTaken, Op: op, ID: name, Err: ErrNameForeign}
	}
	return p.Open(found.ID), nil
}
