package api

import (
	"github.com/labstack/echo/v4"

	"github.com/overwinter-dev/overwinter/internal/session"
)

const (
	eventsRoute  = "/api/sessions/:id/events"
	metricsRoute = "/metrics"
)

// open are the routes that want no key.
var open = map[string]bool{"/healthz": true, "/readyz": true, "/openapi.json": true, "/openapi.yaml": true}

// withHead makes HEAD answer whatever GET answers, with the same header; net/http leaves the body out.
type withHead struct{ *echo.Echo }

// GET registers a handler for both methods.
func (e withHead) GET(path string, handler echo.HandlerFunc) {
	e.Echo.GET(path, handler)
	e.HEAD(path, handler)
}

func (s *Server) routes() {
	s.echo.Use(s.identify, s.secureHeaders, s.observe, s.recoverPanics, s.refuseForeignHosts, s.refuseForeignUsers, s.refuseForeignOrigins, s.authorize, s.strictQuery, s.bound)

	e := withHead{s.echo}
	e.GET("/healthz", s.health)
	e.GET("/readyz", s.ready)
	e.GET(metricsRoute, s.metrics.handler())
	e.GET("/openapi.json", s.openapiJSON)
	e.GET("/openapi.yaml", s.openapiYAML)

	e.GET("/api/agents", s.agentList)
	e.GET("/api/profiles", s.profileList)
	e.POST("/api/profiles", s.profileCreate)
	e.GET("/api/profiles/:profileId", s.profileGet)
	e.PUT("/api/profiles/:profileId", s.profilePut)
	e.DELETE("/api/profiles/:profileId", s.profileDelete)
	e.GET("/api/secrets", s.secretList)
	e.PUT("/api/secrets/:name", s.secretPut)
	e.DELETE("/api/secrets/:name", s.secretDelete)
	e.POST("/api/sessions", s.sessionCreate)
	e.GET("/api/sessions", s.sessionList)
	e.GET("/api/sessions/:id", s.sessionGet)
	e.PATCH("/api/sessions/:id", s.sessionPatch)
	e.DELETE("/api/sessions/:id", s.sessionDelete)
	for _, kind := range session.CommandKinds {
		handler := s.command(kind)
		if kind == session.CommandRevert {
			handler = s.revert
		}
		e.POST("/api/sessions/:id/"+string(kind), handler)
	}
	for _, name := range []string{"prompts", "messages"} {
		prompts := "/api/sessions/:id/" + name
		e.POST(prompts, s.promptSubmit)
		e.GET(prompts, s.promptList)
		e.GET(prompts+"/:promptId", s.promptGet)
		e.DELETE(prompts+"/:promptId", s.promptWithdraw)
	}
	e.GET("/api/sessions/:id/questions", s.questionList)
	e.GET("/api/sessions/:id/questions/:questionId", s.questionGet)
	e.POST("/api/sessions/:id/questions/:questionId/answer", s.questionAnswer)
	e.GET("/api/sessions/:id/files", s.fileList)
	e.GET("/api/sessions/:id/files/*", s.fileGet)
	e.GET("/api/sessions/:id/diff", s.diff)
	e.GET("/api/sessions/:id/blocks", s.blocks)
	e.GET(transcriptRoute, s.transcript)
	e.GET(eventsRoute, s.events)
	e.GET("/api/sessions/:id/state", s.state)

	s.known = map[string]bool{}
	for _, r := range e.Routes() {
		s.known[r.Method+" "+r.Path] = true
	}
}
