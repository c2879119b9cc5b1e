package client_test

import (
	"net/http/httptest"

	"github.com/overwinter-dev/overwinter/api"
	"github.com/overwinter-dev/overwinter/api/apitest"
	"github.com/overwinter-dev/overwinter/internal/secret"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// exampleServer serves the real API over an in-memory store. Its agent repeats each prompt.
func exampleServer() (address string, stop func()) {
	store, signaler := apitest.NewStore(), &apitest.Signaler{}
	signaler.OnPrompt = func(sessionID, promptID string) {
		for _, p := range store.Row(sessionID).Prompts {
			if p.ID == promptID {
				store.Turn(sessionID, promptID, session.PromptCompleted, "", "You said: "+p.Content)
			}
		}
	}
	s, err := api.New(api.Config{Store: store, Signaler: signaler, Events: store, Agents: agents{}, Key: secret.NewValue(key)})
	if err != nil {
		panic(err)
	}
	server := httptest.NewServer(s)
	return server.URL, func() {
		server.CloseClientConnections()
		server.Close()
	}
}
