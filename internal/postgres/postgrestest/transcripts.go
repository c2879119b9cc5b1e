package postgrestest

import (
	"context"

	"github.com/overwinter-dev/overwinter/internal/postgres"
	"github.com/overwinter-dev/overwinter/internal/transcript"
)

// Transcripts returns the complete transcripts of a session by path.
func Transcripts(ctx context.Context, db *postgres.DB, sessionID string) ([]transcript.File, error) {
	positions, err := db.TranscriptPositions(ctx, sessionID)
	if err != nil {
		return nil, err
	}
	files := make([]transcript.File, len(positions))
	for i, p := range positions {
		files[i] = transcript.File{Path: p.Path, Version: p.Version, Data: []byte{}}
		for piece, err := range db.TranscriptContent(ctx, sessionID, p) {
			if err != nil {
				return nil, err
			}
			files[i].Data = append(files[i].Data, piece...)
		}
	}
	return files, nil
}
