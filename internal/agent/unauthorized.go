package agent

// Unauthorized is the rejection of an agent's key by the model API. It is permanent: a retry with
// the same key is rejected too.
type Unauthorized struct {
	Status int `json:"status"` // of the response
	// URL is the URL of the request, and Provider the agent's name for the provider; empty if
	// unknown.
	URL      string `json:"url,omitempty"`
	Provider string `json:"provider,omitempty"`
}
