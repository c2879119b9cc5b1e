package acpclient

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/overwinter-dev/overwinter/internal/agent/acp/acpformat"
	"github.com/overwinter-dev/overwinter/internal/runner/bridge"
)

// Capabilities are the capabilities that an agent reports.
type Capabilities struct {
	Version      string // of the agent
	Load, Resume bool   // of sessions
	Images       bool   // in prompts
}

// Initialize performs the handshake. The client offers neither files nor terminals.
func Initialize(ctx context.Context, peer *bridge.Peer) (Capabilities, error) {
	type object = map[string]any
	raw, err := peer.Call(ctx, acpformat.MethodInitialize, object{
		"protocolVersion":    acpformat.Version,
		"clientCapabilities": object{"fs": object{"readTextFile": false, "writeTextFile": false}, "terminal": false},
		"clientInfo":         object{"name": "overwinter", "version": "1"},
	})
	if err != nil {
		return Capabilities{}, err
	}
	var can struct {
		Version int `json:"protocolVersion"`
		Info    struct {
			Version string `json:"version"`
		} `json:"agentInfo"`
		Capabilities struct {
			Load   bool `json:"loadSession"`
			Prompt struct {
				Image bool `json:"image"`
			} `json:"promptCapabilities"`
			Session struct {
				Resume json.RawMessage `json:"resume"`
			} `json:"sessionCapabilities"`
		} `json:"agentCapabilities"`
	}
	if acpformat.Decode(raw, &can); can.Version != acpformat.Version {
		return Capabilities{}, fmt.Errorf("the agent speaks version %d of the protocol, not %d", can.Version, acpformat.Version)
	}
	return Capabilities{
		Version: can.Info.Version, Load: can.Capabilities.Load, Resume: hasValue(can.Capabilities.Session.Resume), Images: can.Capabilities.Prompt.Image,
	}, nil
}

func hasValue(raw json.RawMessage) bool {
	s := string(raw)
	return s != "" && s != "null" && s != "false"
}

// Where contains the parameters with which the agent resumes a session. A new session needs no
// others.
type Where struct {
	SessionID string          `json:"sessionId,omitempty"` // of a session that is resumed
	Dir       string          `json:"cwd"`
	Servers   json.RawMessage `json:"mcpServers"` // a list
}

// NewSession creates a session and returns its id.
func NewSession(ctx context.Context, peer *bridge.Peer, where Where) (string, error) {
	raw, err := peer.Call(ctx, acpformat.MethodNew, where)
	if err != nil {
		return "", err
	}
	var made struct {
		SessionID string `json:"sessionId"`
	}
	if acpformat.Decode(raw, &made); made.SessionID == "" {
		return "", errors.New(acpformat.MethodNew + ": the agent names no session")
	}
	return made.SessionID, nil
}

// Recall makes the agent resume a session, with the first of methods that succeeds. If none does,
// Lost is the last error. Err is set if the agent has exited.
func Recall(ctx context.Context, peer *bridge.Peer, where Where, methods ...string) Started {
	lost := errors.New("it cannot load sessions")
	for _, method := range methods {
		_, err := peer.Call(ctx, method, where)
		if err == nil {
			return Started{Session: where.SessionID, Loaded: true}
		}
		if errors.Is(err, bridge.ErrGone) || ctx.Err() != nil {
			return Started{Err: err}
		}
		lost = err
	}
	return Started{Lost: lost}
}
