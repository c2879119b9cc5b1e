package agent

// Unauthorized is the refusal of an agent's key by the server of its model. It is final: the same key is refused again.
type Unauthorized struct {
	Status int `json:"status"` // of the response
	// URL is that of the request, and Provider what the agent calls the server's provider; empty where it does not say.
	URL      string `json:"url,omitempty"`
	Provider string `json:"provider,omitempty"`
}
