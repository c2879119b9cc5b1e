package runner

// Bounds of calls of overwinter's tools.
const (
	// MaxCall bounds the data of a call.
	MaxCall = 16 << 20
	// MaxCallAnswer bounds the answer to a call.
	MaxCallAnswer = 64 << 10
	// MaxCalls bounds the calls that wait for an answer at a time.
	MaxCalls = 16
)

// CallRefused is the runner's own answer to a call that no worker answers.
type CallRefused struct {
	Text   string `json:"text"`
	Failed bool   `json:"failed"`
}
