package runner

// Bounds of calls of overwinter's tools.
const (
	// MaxCall bounds the data of a call.
	MaxCall = 16 << 20
	// MaxCallAnswer bounds the answer to a call.
	MaxCallAnswer = 64 << 10
	// MaxCalls is how many calls may wait for an answer at a time.
	MaxCalls = 16
)

// CallRefused is the answer of the runner itself to a call that no worker answers.
type CallRefused struct {
	Text   string `json:"text"`
	Failed bool   `json:"failed"`
}
