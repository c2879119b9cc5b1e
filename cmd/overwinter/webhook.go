package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/overwinter-dev/overwinter/client"
	"github.com/overwinter-dev/overwinter/internal/terminal"
)

// webhookCmd manages webhooks.
type webhookCmd struct {
	apiFlags
	List       webhookListCmd       `cmd:"" help:"List the webhooks, newest first."`
	Create     webhookCreateCmd     `cmd:"" help:"Create a webhook, and print its secret, which is shown once."`
	Update     webhookUpdateCmd     `cmd:"" help:"Change a webhook, disable it or enable it again."`
	Delete     webhookDeleteCmd     `cmd:"" help:"Delete a webhook with its deliveries."`
	Rotate     webhookRotateCmd     `cmd:"" help:"Replace the secret of a webhook, and print the new one."`
	Test       webhookTestCmd       `cmd:"" help:"Send a test delivery to a webhook."`
	Deliveries webhookDeliveriesCmd `cmd:"" help:"List the deliveries of a webhook, newest first."`
	Show       webhookShowCmd       `cmd:"" help:"Show a delivery with its attempts."`
	Redeliver  webhookRedeliverCmd  `cmd:"" help:"Send a delivery again."`
}

// webhookArg names a webhook.
type webhookArg struct {
	Webhook string `arg:"" help:"ID of the webhook."`
}

// deliveryArg names a delivery.
type deliveryArg struct {
	webhookArg
	Delivery string `arg:"" help:"ID of the delivery."`
}

// webhookFilter selects the events of a webhook.
type webhookFilter struct {
	Types    []string          `name:"type" placeholder:"TYPE" help:"Type of events to deliver, such as prompt.completed; repeatable. Default: all."`
	Session  *string           `placeholder:"ID" help:"Only for this session."`
	Agent    *string           `placeholder:"NAME" help:"Only for sessions of this agent."`
	Metadata map[string]string `placeholder:"KEY=VALUE" help:"Only for sessions with this text in their metadata; repeatable."`
	Text     *string           `name:"description" placeholder:"TEXT" help:"Description."`
}

func (f webhookFilter) fields() client.WebhookFields {
	return client.WebhookFields{Types: f.Types, SessionID: f.Session, Agent: f.Agent, Metadata: f.Metadata, Description: f.Text}
}

// printWebhooks writes one line for each webhook.
func (c *apiFlags) printWebhooks(w io.Writer, items ...client.Webhook) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "ID\tSTATE\tPENDING\tTYPES\tURL") // Flush returns the error
	for _, hook := range items {
		state := "enabled"
		switch {
		case !hook.Enabled && hook.DisabledReason != "":
			state = "disabled: " + hook.DisabledReason
		case !hook.Enabled:
			state = "disabled"
		case hook.FailingSince != nil:
			state = "failing since " + c.when(*hook.FailingSince)
		}
		types := "all"
		if len(hook.Types) > 0 {
			types = strings.Join(hook.Types, ",")
		}
		fmt.Fprintf(t, "%s\t%s\t%d\t%s\t%s\n", hook.ID, state, hook.Pending, types, terminal.OneLine(hook.URL, terminal.TitleRunes))
	}
	return t.Flush()
}

// printWebhook writes one webhook, and its secret if it has one.
func (c *apiFlags) printWebhook(w io.Writer, hook client.Webhook) error {
	if c.json() {
		return printJSON(w, hook)
	}
	if err := c.printWebhooks(w, hook); err != nil || hook.Secret == "" {
		return err
	}
	_, err := fmt.Fprintf(w, "\nsecret, shown once: %s\n", hook.Secret)
	return err
}

// printDeliveries writes one line for each delivery.
func (c *apiFlags) printDeliveries(w io.Writer, items ...client.Delivery) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "ID\tTYPE\tSTATUS\tTRIES\tCREATED\tNEXT\tSESSION")
	for _, d := range items {
		status, next := d.Status, ""
		if d.Reason != "" {
			status += ": " + d.Reason
		}
		if d.NextAt != nil {
			next = c.when(*d.NextAt)
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%d\t%s\t%s\t%s\n", d.ID, d.Type, status, d.Tries, c.when(d.CreatedAt), next, d.SessionID)
	}
	return t.Flush()
}

// printDelivery writes one delivery with its attempts.
func (c *apiFlags) printDelivery(w io.Writer, d client.Delivery) error {
	if c.json() {
		return printJSON(w, d)
	}
	if err := c.printDeliveries(w, d); err != nil || len(d.Attempts) == 0 {
		return err
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "\nATTEMPT\tAT\tTOOK\tANSWER\tERROR")
	for _, a := range d.Attempts {
		answer := "none"
		if a.Code != 0 {
			answer = fmt.Sprint(a.Code)
		}
		fmt.Fprintf(t, "%d\t%s\t%d ms\t%s\t%s\n", a.No, c.when(a.At), a.DurationMS, answer, terminal.OneLine(a.Error, 200))
	}
	return t.Flush()
}

// webhookListCmd lists webhooks.
type webhookListCmd struct{}

// Run prints one line for each webhook.
func (webhookListCmd) Run(ctx context.Context, s streams, parent *webhookCmd) error {
	return parent.with(func(api *client.Client) error {
		page, err := api.WebhookList(ctx)
		if err != nil {
			return err
		}
		if parent.json() {
			return printJSON(s.stdout, page)
		}
		return parent.printWebhooks(s.stdout, page.Items...)
	})
}

// webhookCreateCmd creates a webhook.
type webhookCreateCmd struct {
	URL string `arg:"" help:"URL to which deliveries are posted."`
	webhookFilter
}

// Run prints the webhook with its secret.
func (c *webhookCreateCmd) Run(ctx context.Context, s streams, parent *webhookCmd) error {
	return parent.with(func(api *client.Client) error {
		fields := c.fields()
		fields.URL = &c.URL
		hook, err := api.WebhookCreate(ctx, fields)
		if err != nil {
			return err
		}
		return parent.printWebhook(s.stdout, hook)
	})
}

// webhookUpdateCmd changes a webhook.
type webhookUpdateCmd struct {
	webhookArg
	webhookFilter
	URL     *string `name:"url" placeholder:"URL" help:"URL to which deliveries are posted."`
	Enable  bool    `xor:"state" help:"Enable it, for events from now on."`
	Disable bool    `xor:"state" help:"Disable it; pending deliveries fail."`
}

// Run prints the webhook.
func (c *webhookUpdateCmd) Run(ctx context.Context, s streams, parent *webhookCmd) error {
	return parent.with(func(api *client.Client) error {
		fields := c.fields()
		fields.URL = c.URL
		if c.Enable || c.Disable {
			fields.Enabled = &c.Enable
		}
		hook, err := api.WebhookUpdate(ctx, c.Webhook, fields)
		if err != nil {
			return err
		}
		return parent.printWebhook(s.stdout, hook)
	})
}

// webhookDeleteCmd deletes a webhook.
type webhookDeleteCmd struct{ webhookArg }

// Run prints nothing.
func (c *webhookDeleteCmd) Run(ctx context.Context, parent *webhookCmd) error {
	return parent.with(func(api *client.Client) error { return api.WebhookDelete(ctx, c.Webhook) })
}

// webhookRotateCmd replaces a secret.
type webhookRotateCmd struct {
	webhookArg
	Overlap string `default:"24h" placeholder:"DURATION" help:"How long the previous secret also signs deliveries, at most 168h. Default ${default}."`
}

// Run prints the webhook with its new secret.
func (c *webhookRotateCmd) Run(ctx context.Context, s streams, parent *webhookCmd) error {
	return parent.with(func(api *client.Client) error {
		hook, err := api.WebhookRotate(ctx, c.Webhook, c.Overlap)
		if err != nil {
			return err
		}
		return parent.printWebhook(s.stdout, hook)
	})
}

// webhookTestCmd tries a webhook.
type webhookTestCmd struct{ webhookArg }

// Run prints the delivery.
func (c *webhookTestCmd) Run(ctx context.Context, s streams, parent *webhookCmd) error {
	return parent.with(func(api *client.Client) error {
		d, err := api.WebhookTest(ctx, c.Webhook)
		if err != nil {
			return err
		}
		return parent.printDelivery(s.stdout, d)
	})
}

// webhookDeliveriesCmd lists deliveries.
type webhookDeliveriesCmd struct {
	webhookArg
	Status string `enum:",pending,delivered,failed" default:"" placeholder:"STATUS" help:"List only deliveries with this status: pending, delivered or failed."`
	Limit  int    `default:"50" placeholder:"N" help:"Maximum number of deliveries. Default ${default}."`
}

// Run prints one line for each delivery.
func (c *webhookDeliveriesCmd) Run(ctx context.Context, s streams, parent *webhookCmd) error {
	return parent.with(func(api *client.Client) error {
		page, err := api.DeliveryList(ctx, c.Webhook, c.Status, c.Limit)
		if err != nil {
			return err
		}
		if parent.json() {
			return printJSON(s.stdout, page)
		}
		return parent.printDeliveries(s.stdout, page.Items...)
	})
}

// webhookShowCmd shows a delivery.
type webhookShowCmd struct{ deliveryArg }

// Run prints the delivery with its attempts.
func (c *webhookShowCmd) Run(ctx context.Context, s streams, parent *webhookCmd) error {
	return parent.with(func(api *client.Client) error {
		d, err := api.DeliveryGet(ctx, c.Webhook, c.Delivery)
		if err != nil {
			return err
		}
		return parent.printDelivery(s.stdout, d)
	})
}

// webhookRedeliverCmd sends a delivery again.
type webhookRedeliverCmd struct{ deliveryArg }

// Run prints the delivery.
func (c *webhookRedeliverCmd) Run(ctx context.Context, s streams, parent *webhookCmd) error {
	return parent.with(func(api *client.Client) error {
		d, err := api.DeliveryRepeat(ctx, c.Webhook, c.Delivery)
		if err != nil {
			return err
		}
		return parent.printDelivery(s.stdout, d)
	})
}
