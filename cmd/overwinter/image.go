package main

import (
	"context"
	"log/slog"

	"github.com/overwinter-dev/overwinter/internal/agent"
	"github.com/overwinter-dev/overwinter/internal/agent/catalog"
	"github.com/overwinter-dev/overwinter/internal/image"
	"github.com/overwinter-dev/overwinter/internal/metrics"
	"github.com/overwinter-dev/overwinter/internal/postgres"
	"github.com/overwinter-dev/overwinter/internal/runner"
	"github.com/overwinter-dev/overwinter/internal/sandbox"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// imageLedger records base images in Postgres.
type imageLedger struct{ db *postgres.DB }

func (l imageLedger) Intend(ctx context.Context, name string) (string, error) {
	intent := image.Intent{ID: session.NewID("img_"), Source: name}
	return intent.ID, l.db.ImageIntend(ctx, intent)
}

func (l imageLedger) End(ctx context.Context, intentID string) error {
	return l.db.ImageIntentEnd(ctx, intentID)
}

func (l imageLedger) Use(ctx context.Context, name, imageID string) (bool, error) {
	return l.db.BaseImageUse(ctx, name, imageID)
}

// images prepares the images of sessions: the runner, and the agent if it is a separate program.
type images struct {
	images *sandbox.Images
	runner string // the path of the runner to install
	agents *agent.Registry
}

func newImages(p *sandbox.Provider, db *postgres.DB, runnerBinary string, m *metrics.Worker, logger *slog.Logger) images {
	progress := func(recipe, step string) {
		logger.Info("image is being prepared", slog.String("recipe", recipe), slog.String("step", step))
	}
	return images{
		images: sandbox.NewImages(p, sandbox.ImagesOptions{Ledger: imageLedger{db}, Logger: logger, Progress: progress, Built: m.ImageBuilt}),
		runner: runnerBinary, agents: catalog.Agents(),
	}
}

// Prepare returns the image of an agent, and builds it if no worker has built it yet.
func (i images) Prepare(ctx context.Context, agentName string) (string, error) {
	adapter, err := i.agents.Get(agentName)
	if err != nil {
		return "", err
	}
	paths := runner.DefaultPaths()
	recipe := sandbox.Recipe{
		Name:     "base",
		Files:    []sandbox.RecipeFile{{Path: paths.Binary, Mode: 0o755, Source: i.runner}},
		Commands: [][]string{{"mkdir", "-p", paths.Workspace, paths.State, paths.Home}},
	}
	if installer, ok := adapter.(agent.Installer); ok {
		installation := installer.Installation()
		recipe.Name, recipe.Base = agentName, installation.Base
		recipe.Commands = append(recipe.Commands, installation.Commands...)
	}
	return i.images.Prepare(ctx, recipe)
}
