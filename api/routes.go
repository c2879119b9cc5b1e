package api

import (
	"github.com/labstack/echo/v4"

	"github.com/overwinter-dev/overwinter/internal/session"
)

const (
	eventsRoute  = "/api/sessions/:id/events"
	streamRoute  = "/api/sessions/:id/stream"
	metricsRoute = "/metrics"

	aiRoute         = "/api/sessions/:id/ai"
	aiStreamRoute   = aiRoute + "/stream"
	aiMessagesRoute = aiRoute + "/messages"
	aguiRoute       = "/api/sessions/:id/ag-ui"
)

// open lists the routes that do not require a key.
var open = map[string]bool{"/healthz": true, "/readyz": true, "/openapi.json": true, "/openapi.yaml": true, "/asyncapi.yaml": true}

// withHead serves HEAD like GET, with the same header; net/http omits the body.
type withHead struct{ *echo.Echo }

// GET registers a handler for both methods.
func (e withHead) GET(path string, handler echo.HandlerFunc) {
	e.Echo.GET(path, handler)
	e.HEAD(path, handler)
}

func (s *Server) routes(store Store) {
	prompts, questions := &prompts{s, store}, &questions{s, store}
	sessions := &sessions{&commands{s, store}, store}

	s.echo.Use(s.identify, s.secureHeaders, s.observe, s.recoverPanics, s.shareWithOrigins, s.refuseForeignHosts, s.refuseForeignUsers, s.refuseForeignOrigins, s.authorize, s.strictQuery, s.bound)

	e := withHead{s.echo}
	s.routeSystem(e, store)
	s.routeInstallation(e, store)
	s.routeWebhooks(e)
	s.routeSessions(e, store, sessions)
	s.routePrompts(e, store, prompts, questions)
	s.routeContent(e, store, prompts)
	s.routeBundles(e, store, sessions)
	s.routeStreams(e, store)
	s.routeChats(e, store, prompts, questions)

	s.known = map[string]bool{}
	for _, r := range e.Routes() {
		s.known[r.Method+" "+r.Path] = true
	}
}

func (s *Server) routeSystem(e withHead, store Store) {
	readiness := &readinessCheck{s, store}
	e.GET("/healthz", s.health)
	e.GET("/readyz", readiness.ready)
	e.GET(metricsRoute, s.metrics.handler())
	e.GET("/openapi.json", s.openapiJSON)
	e.GET("/openapi.yaml", s.openapiYAML)
	e.GET("/asyncapi.yaml", s.asyncapiYAML)
}

// routeInstallation adds the routes of the installation.
func (s *Server) routeInstallation(e withHead, store Store) {
	agents, profiles, secrets := &agents{s, store}, &profiles{s, store}, &secrets{s, store}
	lifecycles := &lifecycleStreams{s, store, &lifecycleTail{store: store, every: s.cfg.LifecyclePoll, logger: s.logger}}
	e.GET(lifecycleRoute, lifecycles.events)
	e.GET("/api/agents", agents.agentList)
	e.GET("/api/profiles", profiles.profileList)
	e.POST("/api/profiles", profiles.profileCreate)
	e.GET("/api/profiles/:profileId", profiles.profileGet)
	e.GET("/api/profiles/:profileId/versions", profiles.profileVersions)
	e.PUT("/api/profiles/:profileId", profiles.profilePut)
	e.DELETE("/api/profiles/:profileId", profiles.profileDelete)
	e.GET("/api/secrets", secrets.secretList)
	e.PUT("/api/secrets/:name", secrets.secretPut)
	e.DELETE("/api/secrets/:name", secrets.secretDelete)
}

func (s *Server) routeWebhooks(e withHead) {
	webhooks := &webhooks{s, s.cfg.Webhooks}
	const route = "/api/webhooks"
	e.GET(route, webhooks.kept(webhooks.list))
	e.POST(route, webhooks.kept(webhooks.create))
	e.GET(route+"/:webhookId", webhooks.kept(webhooks.get))
	e.PATCH(route+"/:webhookId", webhooks.kept(webhooks.patch))
	e.DELETE(route+"/:webhookId", webhooks.kept(webhooks.delete))
	e.POST(route+"/:webhookId/rotate", webhooks.kept(webhooks.rotate))
	e.POST(route+"/:webhookId/test", webhooks.kept(webhooks.test))
	e.POST(route+"/:webhookId/replay", webhooks.kept(webhooks.replay))
	e.GET(route+"/:webhookId/deliveries", webhooks.kept(webhooks.deliveries))
	e.GET(route+"/:webhookId/deliveries/:deliveryId", webhooks.kept(webhooks.delivery))
	e.POST(route+"/:webhookId/deliveries/:deliveryId/redeliver", webhooks.kept(webhooks.redeliver))
}

func (s *Server) routeSessions(e withHead, store Store, sessions *sessions) {
	explanations := &explanations{s, store}
	e.POST("/api/sessions", sessions.sessionCreate)
	e.GET("/api/sessions", sessions.sessionList)
	e.GET("/api/sessions/:id", sessions.sessionGet)
	e.PATCH("/api/sessions/:id", sessions.sessionPatch)
	e.DELETE("/api/sessions/:id", sessions.sessionDelete)
	for _, kind := range session.CommandKinds {
		if kind == session.CommandRevertFiles {
			continue // handled by the route of all reverts
		}
		handler := sessions.command(kind)
		if kind == session.CommandRevert {
			handler = sessions.revert
		}
		e.POST("/api/sessions/:id/"+string(kind), handler)
	}
	e.GET("/api/sessions/:id/state", s.state)
	e.GET("/api/sessions/:id/why", explanations.why)
	e.GET("/api/sessions/:id/history", explanations.history)
}

func (s *Server) routePrompts(e withHead, store Store, prompts *prompts, questions *questions) {
	holds, queues := &holds{s, store}, &queues{s, store}
	for _, name := range []string{"prompts", "messages"} {
		route := "/api/sessions/:id/" + name
		e.POST(route, prompts.promptSubmit)
		e.GET(route, prompts.promptList)
		e.GET(route+"/:promptId", prompts.promptGet)
		e.PUT(route+"/:promptId", queues.replace)
		e.DELETE(route+"/:promptId", prompts.promptWithdraw)
		e.POST(route+"/:promptId/promote", queues.promote)
		for _, action := range []session.Resolution{session.ResolutionRetry, session.ResolutionResolve, session.ResolutionDismiss} {
			e.POST(route+"/:promptId/"+string(action), prompts.resolve(action))
		}
	}
	e.POST("/api/sessions/:id/queue/clear", queues.clear)
	e.POST("/api/sessions/:id/hold", holds.hold)
	e.POST("/api/sessions/:id/release", holds.release)
	e.GET("/api/questions", questions.questionInbox)
	e.GET("/api/sessions/:id/questions", questions.questionList)
	e.GET("/api/sessions/:id/questions/:questionId", questions.questionGet)
	e.POST("/api/sessions/:id/questions/:questionId/answer", questions.questionAnswer)
}

// routeContent adds the conversation and the workspace.
func (s *Server) routeContent(e withHead, store Store, prompts *prompts) {
	files, attachments, reports := &files{s, sessionID, store}, &attachments{s, store}, &reports{s, store}
	conversations, transcripts, reviews := &conversations{s, store}, &transcripts{s, store}, &reviews{prompts, files}
	e.GET("/api/sessions/:id/files", files.fileList)
	e.GET("/api/sessions/:id/files/*", files.fileGet)
	e.GET("/api/sessions/:id/diff", files.diff)
	e.GET("/api/sessions/:id/attachments/:attachmentId", attachments.attachmentGet)
	e.POST("/api/sessions/:id/review", reviews.submit)
	e.GET("/api/sessions/:id/git", reports.git)
	e.GET("/api/sessions/:id/screenshots", reports.screenshots)
	e.GET("/api/sessions/:id/blocks", conversations.blocks)
	e.GET(transcriptRoute, transcripts.transcript)
}

// routeBundles adds the routes of bundles, forks, archives and runs.
func (s *Server) routeBundles(e withHead, store Store, sessions *sessions) {
	bundles, filesOfBundles := &bundles{s, store}, &files{s, bundleID, bundleFiles{store}}
	forks, runs := &forks{sessions, store}, &runs{sessions, store, store, store}
	archives := &archives{sessions: sessions, bundles: store, transcripts: store, archived: store, importing: make(chan struct{}, maxImporting)}
	e.GET("/api/sessions/:id/bundles", bundles.list)
	e.GET("/api/bundles/:bundleId", bundles.get)
	e.GET("/api/bundles/:bundleId/blocks", bundles.blocks)
	e.GET("/api/bundles/:bundleId/files", filesOfBundles.fileList)
	e.GET("/api/bundles/:bundleId/files/*", filesOfBundles.fileGet)
	e.GET("/api/bundles/:bundleId/diff", filesOfBundles.diff)
	e.POST("/api/bundles/:bundleId/pin", bundles.pin(true))
	e.POST("/api/bundles/:bundleId/unpin", bundles.pin(false))
	e.POST("/api/sessions/:id/fork", forks.fork)
	e.GET("/api/sessions/:id/forks", forks.list)
	e.POST(importRoute, archives.take)
	e.POST(exportRoute, archives.request)
	e.GET(exportRoute, archives.export)
	e.POST(runsRoute, runs.start)
	e.GET(runsRoute, runs.list)
	e.GET(runRoute, runs.get)
	e.POST(runRoute+"/cancel", runs.cancel)
}

func (s *Server) routeStreams(e withHead, store Store) {
	streams, sockets := &streams{s, store}, &sockets{s, store}
	e.GET(eventsRoute, streams.events)
	e.GET(streamRoute, streams.durable)
	e.GET(socketRoute, sockets.session)
	e.GET(changesRoute, sockets.all)
	e.POST("/api/sessions/:id/stream-tokens", streams.streamTokenCreate)
}

// routeChats adds the protocols of chat interfaces.
func (s *Server) routeChats(e withHead, store Store, prompts *prompts, questions *questions) {
	turns := &aiTurns{prompts, store, store}
	agui := &aguiRuns{prompts: prompts, questions: questions, turns: store, conversations: store, building: make(chan struct{}, maxBuilding)}
	e.POST(aiRoute, turns.submit)
	e.GET(aiStreamRoute, turns.resume)
	e.GET(aiMessagesRoute, turns.messages)
	e.POST(aguiRoute, agui.run)
	e.GET(aguiRoute, agui.attach)
}
