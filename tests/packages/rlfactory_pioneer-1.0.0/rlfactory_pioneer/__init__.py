"""A plugin of somebody else, which uses most of what the plugin API has."""
