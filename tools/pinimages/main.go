// Pinimages updates every image reference in this repository to the current digest of its tag. It
// needs a registry, and crane, skopeo or docker to query it.
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

func main() {
	if err := pin(context.Background(), ".", digestOf); err != nil {
		fmt.Fprintln(os.Stderr, "pinimages:", err)
		os.Exit(1)
	}
}

// sources are the files that name images, each with a pattern whose first group is the name.
var sources = map[string]*regexp.Regexp{
	"Dockerfile":                    regexp.MustCompile(`(?m)^FROM(?: --\S+)* (\S+)`),
	"docker-compose.yml":            regexp.MustCompile(`(?m)^\s+image: (\S+)`),
	"internal/sandbox/images.go":    regexp.MustCompile(`(?m)^\s+DefaultBase = "([^"]+)"`),
	"internal/agent/npm/package.go": regexp.MustCompile(`(?m)^const Image = "([^"]+)"`),
}

// built are the images that docker-compose.yml builds itself.
var built = []string{"overwinter", "overwinter-temporal"}

var pinned = regexp.MustCompile(`@sha256:[0-9a-f]{64}$`)

// reference is one occurrence of an image name.
type reference struct{ file, image string }

// references finds all of them below root.
func references(root string) ([]reference, error) {
	var found []reference
	for file, pattern := range sources {
		text, err := os.ReadFile(filepath.Join(root, file))
		if err != nil {
			return nil, err
		}
		matches := pattern.FindAllStringSubmatch(string(text), -1)
		if len(matches) == 0 {
			return nil, fmt.Errorf("%s names no image; is the pattern out of date?", file)
		}
		for _, match := range matches {
			if !slices.Contains(built, match[1]) {
				found = append(found, reference{file, match[1]})
			}
		}
	}
	return found, nil
}

// pin writes the digest of each image after its tag. Nothing is written unless all digests are
// known.
func pin(ctx context.Context, root string, digest func(context.Context, string) (string, error)) error {
	found, err := references(root)
	if err != nil {
		return err
	}
	changed := map[string]string{} // image in the file -> image with the current digest
	for _, r := range found {
		if _, known := changed[r.image]; known {
			continue
		}
		tag, _, _ := strings.Cut(r.image, "@")
		d, err := digest(ctx, tag)
		if err != nil {
			return fmt.Errorf("%s: %w", tag, err)
		}
		if changed[r.image] = tag + "@" + d; !pinned.MatchString(changed[r.image]) {
			return fmt.Errorf("%s: %q is not a digest", tag, d)
		}
	}
	for file, pattern := range sources {
		if err := rewrite(filepath.Join(root, file), func(text string) string {
			return pattern.ReplaceAllStringFunc(text, func(match string) string {
				image := pattern.FindStringSubmatch(match)[1]
				if with, ok := changed[image]; ok {
					return strings.Replace(match, image, with, 1)
				}
				return match
			})
		}); err != nil {
			return err
		}
	}
	return nil
}

func rewrite(path string, change func(string) string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	after := []byte(change(string(text)))
	if bytes.Equal(text, after) {
		return nil
	}
	return os.WriteFile(path, after, 0o644)
}

// digestOf queries the registry, with the first available program.
func digestOf(ctx context.Context, image string) (string, error) {
	full := image
	if !strings.Contains(image, "/") {
		full = "docker.io/library/" + image
	}
	for _, args := range [][]string{
		{"crane", "digest", full},
		{"skopeo", "inspect", "--raw=false", "--format", "{{.Digest}}", "docker://" + full},
		{"docker", "buildx", "imagetools", "inspect", full, "--format", "{{.Manifest.Digest}}"},
	} {
		if _, err := exec.LookPath(args[0]); err != nil {
			continue
		}
		output, err := exec.CommandContext(ctx, args[0], args[1:]...).Output()
		if exit, ok := errors.AsType[*exec.ExitError](err); ok {
			return "", fmt.Errorf("%s: %w: %s", args[0], err, strings.TrimSpace(string(exit.Stderr)))
		}
		return strings.TrimSpace(string(output)), err
	}
	return "", errors.New("none of crane, skopeo and docker is installed")
}
