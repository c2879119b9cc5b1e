package main

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/overwinter-dev/overwinter/internal/postgres"
	"github.com/overwinter-dev/overwinter/internal/secret"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// databaseFlags say where Postgres is.
type databaseFlags struct {
	DatabaseURL string `env:"OVERWINTER_DATABASE_URL" required:"" placeholder:"URL" help:"Postgres, as postgres://user:password@host:port/database."`
}

func (f databaseFlags) open(ctx context.Context, logger *slog.Logger) (*postgres.DB, error) {
	return postgres.Open(ctx, f.DatabaseURL, postgres.Options{Logger: logger})
}

// secretFlags hold the key of the installation.
type secretFlags struct {
	SecretKey string `env:"OVERWINTER_SECRET_KEY" required:"" placeholder:"BASE64" help:"Key of this installation: 32 bytes in base64, the same for every worker."`
}

func (f secretFlags) key() ([]byte, error) { return decodeKey(f.SecretKey) }

func decodeKey(text string) ([]byte, error) {
	key, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return nil, usageError{"OVERWINTER_SECRET_KEY is not base64"}
	}
	if len(key) != secret.KeyBytes {
		return nil, usageError{fmt.Sprintf("OVERWINTER_SECRET_KEY holds %d bytes; it must hold %d", len(key), secret.KeyBytes)}
	}
	return key, nil
}

// sealer seals and opens secrets with the key of the installation.
func sealer(text string) (*secret.Box, error) {
	key, err := decodeKey(text)
	if err != nil {
		return nil, err
	}
	return secret.NewBox(key)
}

// storedSecrets opens the secrets in Postgres.
type storedSecrets struct {
	db  *postgres.DB
	box *secret.Box
}

// Secret returns a secret's value, and false when there is none of the name.
func (s storedSecrets) Secret(ctx context.Context, name string) (secret.Value, bool, error) {
	sealed, err := s.db.SecretSealed(ctx, name)
	if session.CodeOf(err) == session.CodeNoSecret {
		return secret.Value{}, false, nil
	}
	if err != nil {
		return secret.Value{}, false, err
	}
	value, err := s.box.Open(name, sealed)
	if err != nil {
		return secret.Value{}, false, fmt.Errorf("open secret %s: %w", name, err)
	}
	return value, true, nil
}

// runnerBinary finds the program that goes into sandboxes: the one given, or the
// one beside this program.
func runnerBinary(given string) (string, error) {
	if given == "" {
		self, err := os.Executable()
		if err != nil {
			return "", fmt.Errorf("find this program: %w", err)
		}
		given = filepath.Join(filepath.Dir(self), "overwinter-runner")
	}
	if _, err := os.Stat(given); errors.Is(err, os.ErrNotExist) {
		return "", fmt.Errorf("there is no %s: run make build, or name it with --runner-binary", given)
	} else if err != nil {
		return "", fmt.Errorf("look for the runner: %w", err)
	}
	return given, nil
}
