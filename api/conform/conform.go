// Package conform checks events and blocks against the OpenAPI document, in tests of the packages
// that produce them. The tests of package api check its responses.
package conform

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/getkin/kin-openapi/openapi3"

	"github.com/overwinter-dev/overwinter/internal/conversation"
)

// path returns the document's path in the source.
func path() string {
	_, file, _, _ := runtime.Caller(0)
	return filepath.Join(filepath.Dir(file), "..", "openapi.yaml")
}

// HasDocument reports whether the source is available; a test in a sandbox runs without it.
func HasDocument() bool {
	_, err := os.Stat(path())
	return !errors.Is(err, fs.ErrNotExist)
}

var document = sync.OnceValues(func() (*openapi3.T, error) {
	doc, err := openapi3.NewLoader().LoadFromFile(path())
	if err != nil {
		return nil, fmt.Errorf("read the OpenAPI document: %w", err)
	}
	return doc, nil
})

func check(schema string, data []byte) error {
	doc, err := document()
	if err != nil {
		return err
	}
	var value any
	if err := json.Unmarshal(data, &value); err != nil {
		return err
	}
	if err := doc.Components.Schemas[schema].Value.VisitJSON(value); err != nil {
		return fmt.Errorf("%s does not conform to %s: %w", data, schema, err)
	}
	return nil
}

// Event checks an event of a stream, as JSON.
func Event(data []byte) error { return check("Event", data) }

// Block checks a block.
func Block(b conversation.Block) error {
	data, err := json.Marshal(b)
	if err != nil {
		return err
	}
	return check("Block", data)
}

// AgentEvent checks an event of a translator in the form of a stream.
func AgentEvent(e conversation.Event) error {
	envelope := map[string]any{
		"seq": 1, "type": e.Type, "sessionId": "ses_" + strings.Repeat("0", 32), "at": e.At.UTC().Format("2006-01-02T15:04:05.000Z"), "data": e.Data,
	}
	if e.At.IsZero() {
		envelope["at"] = time.UnixMilli(0).UTC().Format("2006-01-02T15:04:05.000Z")
	}
	if e.ConversationID != "" {
		envelope["conversationId"] = e.ConversationID
	}
	data, err := json.Marshal(envelope)
	if err != nil {
		return err
	}
	return Event(data)
}
