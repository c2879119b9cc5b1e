package main

import (
	"context"

	"github.com/overwinter-dev/overwinter/client"
)

// bundleFilesCmd lists the files of a bundle, or prints one of them.
type bundleFilesCmd struct {
	ID     string `arg:"" help:"ID of a bundle, or a session for its newest bundle."`
	Path   string `arg:"" optional:"" help:"File to print. Default: list all files."`
	Prefix string `placeholder:"TEXT" help:"List only paths with this prefix, such as src/."`
}

// Validate checks what kong cannot.
func (c *bundleFilesCmd) Validate() error {
	if c.Path != "" && c.Prefix != "" {
		return usageError{"name a file or a --prefix, not both"}
	}
	return nil
}

// Run prints one line for each file, or the bytes of one file.
func (c *bundleFilesCmd) Run(ctx context.Context, s streams, parent *bundleCmd) error {
	return parent.with(func(api *client.Client) error {
		bundle, err := bundleOf(ctx, api, c.ID)
		if err != nil {
			return err
		}
		if c.Path != "" {
			data, err := api.BundleFileGet(ctx, bundle, c.Path)
			if err != nil {
				return err
			}
			return printFile(s.stdout, data)
		}
		files, err := api.BundleFileList(ctx, bundle, c.Prefix)
		if err != nil {
			return err
		}
		return parent.printFiles(s.stdout, files)
	})
}

// bundleDiffCmd prints the diff of a bundle.
type bundleDiffCmd struct {
	ID   string `arg:"" help:"ID of a bundle, or a session for its newest bundle."`
	Stat bool   `help:"Print only the changed files and the size of each change."`
}

// Run prints the patch, which git apply accepts, or a summary.
func (c *bundleDiffCmd) Run(ctx context.Context, s streams, parent *bundleCmd) error {
	return parent.with(func(api *client.Client) error {
		bundle, err := bundleOf(ctx, api, c.ID)
		if err != nil {
			return err
		}
		d, err := api.BundleDiff(ctx, bundle)
		if err != nil {
			return err
		}
		return parent.printDiff(s.stdout, d, c.Stat)
	})
}
