"""Home Assistant MQTT discovery: mappings from the announcements of devices. Imported only where the setting is on."""
