package codexformat

import (
	"encoding/json"

	"github.com/overwinter-dev/overwinter/internal/agent/jsonscan"
)

// Turn is a turn in progress.
type Turn struct {
	Thread string `json:"thread"`
	ID     string `json:"id"`
}

// Frame is a line of the agent.
type Frame struct {
	ID     json.RawMessage
	Method string
	Params Params
	Result json.RawMessage
	Error  json.RawMessage
	Sent   int64 // Unix time in milliseconds
}

// Params contains the fields of notifications and requests that are used. The method determines
// which of them are set.
type Params struct {
	Thread string          `json:"threadId"`
	Turn   string          `json:"turnId"`
	Item   json.RawMessage `json:"item"`
	ItemID string          `json:"itemId"`
	Delta  string          `json:"delta"`
	Part   int             `json:"summaryIndex"`
	Error  json.RawMessage `json:"error"`
	Retry  bool            `json:"willRetry"`
	Info   json.RawMessage `json:"turn"`
	Usage  json.RawMessage `json:"tokenUsage"`

	Request json.RawMessage `json:"requestId"`
	Model   string          `json:"toModel"`
	Name    string          `json:"name"`
	NewName string          `json:"threadName"`

	Command     string          `json:"command"`
	Cwd         string          `json:"cwd"`
	Reason      string          `json:"reason"`
	Amendment   json.RawMessage `json:"proposedExecpolicyAmendment"`
	Questions   json.RawMessage `json:"questions"`
	Permissions json.RawMessage `json:"permissions"`
	Server      string          `json:"serverName"`
	Message     string          `json:"message"`
	Meta        json.RawMessage `json:"_meta"`
}

// Set stores the field with that name.
func (p *Params) Set(key, value []byte) {
	switch string(key) {
	case "threadId":
		p.Thread = jsonscan.Text(value)
	case "turnId":
		p.Turn = jsonscan.Text(value)
	case "item":
		p.Item = value
	case "itemId":
		p.ItemID = jsonscan.Text(value)
	case "delta":
		p.Delta = jsonscan.Text(value)
	case "summaryIndex":
		p.Part = int(Number(value))
	case "error":
		p.Error = value
	case "willRetry":
		p.Retry = jsonscan.IsTrue(value)
	case "turn":
		p.Info = value
	case "tokenUsage":
		p.Usage = value
	case "requestId":
		p.Request = value
	case "toModel":
		p.Model = jsonscan.Text(value)
	case "name":
		p.Name = jsonscan.Text(value)
	case "threadName":
		p.NewName = jsonscan.Text(value)
	}
}
