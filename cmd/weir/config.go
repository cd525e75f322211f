package main

import (
	"github.com/spf13/cobra"

	"weir/internal/settings"
)

func configCommand() *cobra.Command {
	var s settings.Settings
	var asJSON bool
	c := &cobra.Command{
		Use: "config", Short: "Print the configuration in effect and the source of each value", Args: args(),
		Long: `Print the configuration that 'weir serve' would run with, given the same flags, environment and file. The output is
itself a configuration file, with API keys masked. Nothing is started. An invalid configuration is refused just as
'weir serve' would refuse it, so you can use this command to check a configuration.`,
		Example: "  weir config\n  weir config --config /etc/weir/weir.toml",
		RunE: func(c *cobra.Command, _ []string) error {
			if _, err := loadSettings(c, &s); err != nil {
				return err
			}
			if asJSON {
				return s.PrintJSON(c.OutOrStdout())
			}
			return s.PrintTOML(c.OutOrStdout())
		},
	}
	s.Flags(c.Flags())
	completeSettings(c)
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	c.Flags().SortFlags = false
	return c
}
