"""One package for each controller.  They use nothing but the wire API."""
