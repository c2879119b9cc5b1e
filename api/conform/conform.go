// Package conform checks events and blocks against the OpenAPI document, in tests of the packages
// that produce them. The tests of package api check its responses.
package conform

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/getkin/kin-openapi/openapi3"

	"github.com/overwinter-dev/overwinter/internal/conversation"
)

// path is that of the document, above the directory in which the test was started; "" if there is
// none. The paths that Go compiles into a program are not those of files on the disk.
var path = func() string {
	dir, err := os.Getwd()
	if err != nil {
		return ""
	}
	for {
		found := filepath.Join(dir, "api", "openapi.yaml")
		if _, err := os.Stat(found); err == nil {
			return found
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return ""
		}
		dir = parent
	}
}()

// HasDocument reports whether the source is available; a test in a sandbox runs without it.
func HasDocument() bool { return path != "" }

var document = sync.OnceValues(func() (*openapi3.T, error) {
	if path == "" {
		return nil, errors.New("the OpenAPI document is not available: the test was started outside the module")
	}
	doc, err := openapi3.NewLoader().LoadFromFile(path)
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
